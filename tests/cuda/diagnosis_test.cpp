// SPDX-License-Identifier: Apache-2.0
// A fault between replays of a recorded step is explained on the device, and the steps behind it are those of a run without it.
#include <doctest/doctest.h>

#include <cmath>

#include "amp/diagnosis/diagnose.h"
#include "amp/diagnosis/observation.h"
#include "framework/backend/kernel_log.h"
#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Training {
  std::shared_ptr<Sequential> net = mlp_model(Device::cuda);
  CrossEntropyLoss loss;
  AdamW opt{net->parameters(), {.lr = 0.01}};
  GradScaler scaler{{.init_scale = 1024}};
  TrainStep step{*net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = DType::f16, .graph = GraphMode::on}};
  std::string state() { return bytes(*net) + bytes(opt) + shadow_bytes(*net) + std::to_string(scaler.get_scale()); }
};

// Ten good steps, three with the bad input, ten good ones. The third bad one is explained, where asked for.
std::string train(const Tensor& bad, bool explains, Diagnosis& found) {
  manual_seed(5);
  Training t;
  const Batches batches(Device::cuda, 2);
  for (size_t i = 0; i < 10; ++i) t.step(batches.inputs[i % 2], batches.targets[i % 2]);
  CHECK(t.step.is_recorded());
  for (int i = 0; i < 3; ++i) {
    if (explains && i == 2) t.step.keep_step(true);
    CHECK(t.step(bad, batches.targets[0]).outcome.overflow());
  }
  if (explains) {
    REQUIRE(t.step.kept_step());
    found = diagnose(*t.step.kept_step());
    t.step.keep_step(false);
  }
  for (size_t i = 0; i < 10; ++i) CHECK(t.step(batches.inputs[i % 2], batches.targets[i % 2]).outcome.applied());
  CHECK(t.step.is_recorded());
  return t.state();
}

}  // namespace

TEST_CASE("a fault between replays is explained, and changes no bit of the steps behind it") {
  const Batches batches(Device::cuda, 1);
  Tensor nan = batches.inputs[0].clone();
  nan[3][2].fill_(NAN);
  const Tensor large = batches.inputs[0] * 1e6;
  for (const bool is_nan : {true, false}) {
    const Tensor& bad = is_nan ? nan : large;
    const std::string cause = is_nan ? "input_nonfinite" : "input_range";
    CAPTURE(cause);
    Diagnosis found, none;
    const std::string explained = train(bad, true, found), plain = train(bad, false, none);
    CHECK_MESSAGE(found.cause == cause, found.text());
    CHECK(explained == plain);
  }
}

TEST_CASE("an observed step between replays runs eagerly, has their bits, and leaves the recording in use") {
  const auto trained = [](bool observes) {
    manual_seed(5);
    Training t;
    const Batches batches(Device::cuda, 2);
    for (size_t i = 0; i < 20; ++i) {
      std::optional<StepObserver> observer;
      if (observes && i % 5 == 2) observer.emplace(*t.net, Device::cuda, t.scaler.get_scale(), int64_t(i));
      if (observer) observer->open();
      const StepResult r = t.step(batches.inputs[i % 2], batches.targets[i % 2]);
      if (!observer) continue;
      const Observation seen = observer->finish(r.outcome.applied());
      CHECK(seen.room);
      CHECK(seen.tensors.size() == t.net->parameters().size());
      if (i > 5) CHECK(t.step.is_recorded());
    }
    CHECK(t.step.is_recorded());
    return t.state();
  };
  CHECK(trained(true) == trained(false));
}

TEST_CASE("a log of kernels on the device has what one on the CPU has") {
  const auto events = [](Device device) {
    manual_seed(3);
    const auto net = mlp_model(device);
    const Batches batches(device, 1);
    KernelLog log(device);
    Tensor loss;
    {
      const Autocast region(device, DType::f16);
      loss = CrossEntropyLoss()((*net)(batches.inputs[0]), batches.targets[0]) / 0.0;
    }
    loss.backward();
    const Origin origin = origin_of(log, loss.detach());
    REQUIRE(origin.event >= 0);
    const KernelEvent& e = log.events()[size_t(origin.event)];
    return joined(e.op, ' ', e.kernel, ' ', name(e.pass), ' ', e.writes[0].counts.inf());
  };
  CHECK(events(Device::cuda) == events(Device::cpu));
}

TEST_CASE("a log of whole kernels leaves networks to the library: their bits stay, and each is an event") {
  if (!has_attention()) return;
  manual_seed(6);
  LSTM lstm(8, 8);
  lstm.to(Device::cuda);
  const Tensor x = randn({5, 2, 8}, {.device = Device::cuda});
  const Tensor q = randn({2, 2, 8, 16}, {.device = Device::cuda}).to(DType::f16).set_requires_grad();
  const auto run = [&] {
    const Autocast region(Device::cuda, DType::f16);
    const Tensor y = lstm(x).output, z = scaled_dot_product_attention(q, q, q);
    Tensors wanted = lstm.parameters();
    wanted.push_back(q);
    std::string all = bytes(y) + bytes(z);
    for (const Tensor& g : grad({y.to(DType::f32).sum() + z.to(DType::f32).square().sum()}, wanted)) all += bytes(g);
    return all;
  };
  const std::string plain = run();
  std::string kernels;
  {
    const KernelLog log(Device::cuda, nullptr, KernelLog::Look::kernels);
    CHECK(run() == plain);
    for (const KernelEvent& e : log.events()) kernels += e.kernel + " ";
  }
  for (const char* kernel : {"attention ", "attention_backward ", "recurrent ", "recurrent_backward "})
    CHECK_MESSAGE(kernels.find(kernel) != std::string::npos, std::string(kernel), kernels);
}
