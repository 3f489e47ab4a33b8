// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/diagnose.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "amp/autocast/autocast.h"
#include "amp/step/grad_scaler.h"
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/amp/diagnosis/faults.h"
#include "tests/support/source_dir.h"

using namespace halfstep;

namespace {

std::string text_of(const faults::Found& found) {
  std::string out = found.diagnosis.text();
  for (const StepReplayResult& a : found.diagnosis.replays)
    out += joined("\n  arm ", a.name, ": ", a.finite() ? "good" : "bad", ", loss ", a.loss,
                  a.event ? "; " + describe(*a.event) : "", a.error);
  return out;
}

}  // namespace

// HALFSTEP_SHOW=1 prints all diagnoses.
TEST_CASE("a diagnosis names each planted fault, and nothing where there is none") {
  for (const faults::Fault& fault : faults::all()) {
    const faults::Found found = faults::run(fault, {});
    CAPTURE(fault.name);
    CAPTURE(found.step);
    CAPTURE(text_of(found));
    CHECK(found.diagnosis.cause == fault.cause);
    CHECK(found.untouched);
    if (std::getenv("HALFSTEP_SHOW") && !fault.cause.empty())
      MESSAGE(fault.name, ", step ", found.step, "\n", found.diagnosis.text());
  }
}

TEST_CASE("docs/diagnostics.md has a row for each cause") {
  std::stringstream page;
  page << std::ifstream(halfstep_source_dir() + "/docs/diagnostics.md").rdbuf();
  for (const faults::Fault& fault : faults::all())
    CHECK_MESSAGE((fault.cause.empty() || page.str().find("\n| `" + fault.cause + "` |") != std::string::npos), fault.cause);
}

// At most 3 of 100 may be wrong. HALFSTEP_DRAWS: draws of each fault, in place of two.
TEST_CASE("a diagnosis names planted faults of other widths, depths, batches, seeds and precisions") {
  const char* const text = std::getenv("HALFSTEP_DRAWS");
  const int draws = text ? std::atoi(text) : 2;
  int all = 0, wrong = 0;
  for (int number = 1; number <= draws; ++number) {
    const faults::Draw d = faults::draw(number);
    for (const faults::Fault& fault : faults::all()) {
      const faults::Found found = faults::run(fault, d);
      ++all;
      CHECK(found.untouched);
      if (found.diagnosis.cause == fault.cause) continue;
      ++wrong;
      MESSAGE("draw ", number, ", ", fault.name, ": ", found.diagnosis.cause, " at step ", found.step, "\n", text_of(found));
    }
  }
  CHECK(100 * wrong <= 3 * all);
}

TEST_CASE("what does not fit into float16 does after the remedy that was tried") {
  int with_modules = 0;
  for (const faults::Fault& fault : faults::of_range()) {
    if (!fault.cause.ends_with("_range")) continue;
    const faults::Found found = faults::run(fault, {});
    CAPTURE(fault.name);
    CAPTURE(text_of(found));
    REQUIRE_FALSE(found.diagnosis.remedies.empty());
    const Remedy& first = found.diagnosis.remedies[0];
    CHECK(first.tried == Remedy::Tried::holds);
    if (fault.cause == "input_range" || first.text.find("modules") == std::string::npos) continue;
    ++with_modules;
    // With these modules in float32 the range of float16 is not to blame for anything any more.
    faults::Fault mended = fault;
    mended.make = [&](const faults::Draw& d) {
      faults::Run run = fault.make(d);
      for (const auto& [name, module] : run.module->named_modules())
        if (first.text.find('"' + name + '"') != std::string::npos) module->set_precision(DType::f32);
      run.steps = 20;
      return run;
    };
    const Diagnosis after = faults::run(mended, {}).diagnosis;
    CHECK_MESSAGE(!after.cause.ends_with("_range"), after.text());
  }
  CHECK(with_modules >= 6);
}

// Two losses and two optimizers under one scaler, as in a GAN: each loss is a step of its own, and only the one to blame is named.
TEST_CASE("of several losses under one scaler the diagnosis is that of the loss whose gradients overflow") {
  manual_seed(4);
  Sequential generator{Linear(6, 8), Tanh(), Linear(8, 5)}, critic{Linear(5, 8), ReLU(), Linear(8, 1)};
  SGD of_generator(generator.parameters(), {.lr = 0.1}), of_critic(critic.parameters(), {.lr = 0.1});
  GradScaler scaler({.init_scale = 2048});
  const Tensor noise = randn({16, 6}), real = randn({16, 5});
  const auto critic_loss = [&] { return (critic(generator(noise).detach()) - critic(real)).mean() * 3e4; };
  const auto generator_loss = [&] { return critic(generator(noise)).mean().neg(); };
  for (auto* opt : {&of_generator, &of_critic}) opt->zero_grad();
  const auto in_region = [](const auto& loss) {
    const Autocast region(Device::cpu, DType::f16);
    return loss();
  };
  scaler.scale(in_region(critic_loss)).backward();
  for (const Tensor& p : critic.parameters()) CHECK(p.grad().defined());
  const StepOutcome of_first = scaler.step(of_critic);
  for (const Tensor& p : critic.parameters()) p.zero_grad();
  scaler.scale(in_region(generator_loss)).backward();
  const StepOutcome of_second = scaler.step(of_generator);
  CHECK(!of_first.applied());
  CHECK(of_second.applied());
  const double scale = scaler.get_scale();
  scaler.update();
  CHECK(scaler.get_scale() == scale / 2);  // for both

  const auto found = [&](Module& module, const std::function<Tensor()>& loss) {
    return diagnose({.module = module,
                     .batches = {{loss, {noise}, {}}},
                     .low = DType::f16,
                     .scale = scale,
                     .random = default_generator().state()});
  };
  CHECK(found(critic, critic_loss).cause == "overflow_scale");
  CHECK(found(generator, generator_loss).cause == "not_reproduced");
}
