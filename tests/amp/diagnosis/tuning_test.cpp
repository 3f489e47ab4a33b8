// SPDX-License-Identifier: Apache-2.0
// Which modules must compute in float32: planted faults train with what tuning chooses.
#include "amp/diagnosis/tuning.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "tests/amp/diagnosis/faults.h"

using namespace halfstep;
using faults::layers;

namespace {

struct ToTune {
  std::shared_ptr<Module> model;
  std::shared_ptr<Loss> loss;
  std::vector<std::pair<Tensor, Tensor>> data;
  explicit ToTune(const faults::Run& run) : model(run.module), loss(run.loss) {
    model->train();
    for (int i = 0; i < 4; ++i) data.push_back(run.batch(i));
  }
  StepUnderTest step(double scale) {
    StepUnderTest out{.module = *model, .batches = {}, .low = DType::f16};
    out.scale = scale;
    for (const auto& [x, y] : data) out.batches.push_back({[this, &x = x, &y = y] { return (*loss)((*model)(x), y); }, {x}, {y}});
    return out;
  }
};

std::string text_of(const Tuning& t) {
  std::string out = joined("float16 or not: ", t.low, " ", t.why_low, "; error ", t.before.measure(), " to ", t.after.measure());
  for (const TunedModule& m : t.modules) out += joined("\n  ", m.path, ": ", m.why);
  return out + (t.fault ? "\n" + t.fault->text() : "");
}

}  // namespace

TEST_CASE("tuning mends each planted fault of range, and the model then trains") {
  int tuned = 0;
  for (const faults::Fault& fault : faults::of_range()) {
    if (!fault.cause.ends_with("_range")) continue;
    CAPTURE(fault.name);
    manual_seed(11);
    faults::Run run = fault.make({});
    ToTune t(run);
    const std::string bytes = faults::bytes_of(*t.model);
    const Tuning found = tune(t.step(run.scaler.init_scale));
    CAPTURE(text_of(found));
    CHECK(faults::bytes_of(*t.model) == bytes);
    REQUIRE_FALSE(found.fault);
    CHECK((found.low == DType::bf16 || !found.modules.empty()));
    CHECK(found.after.verdict() != Parity::Verdict::harmful);
    faults::Fault mended{fault.name, "", [&](const faults::Draw& d) {
                           faults::Run again = fault.make(d);
                           again.step.amp = found.low;
                           for (const auto& [name, module] : again.module->named_modules())
                             for (const TunedModule& m : found.modules)
                               if (m.path == name) module->set_precision(DType::f32);
                           again.steps = 20;
                           return again;
                         }};
    const Diagnosis after = faults::run(mended, {}).diagnosis;
    CHECK_MESSAGE(!after.cause.ends_with("_range"), after.text());
    ++tuned;
  }
  CHECK(tuned >= 10);
}

TEST_CASE("tuning takes the module that loses precision to float32, within the budget") {
  manual_seed(1);
  const auto lossy = faults::function("Lossy", [](const Tensor& x) { return (x + 2400.0) - 2400.0; });
  const auto make = [&] {
    return faults::training(layers({{"in", std::make_shared<Linear>(16, 32)},
                                    {"middle", lossy},
                                    {"act", std::make_shared<ReLU>()},
                                    {"head", std::make_shared<Linear>(32, 4)}}),
                            faults::mse(), DType::f16, 1024, faults::regression({}, 16, 4));
  };
  ToTune t(make());
  const Tuning found = tune(t.step(1024), {.shares = {{"in", 0.8}, {"middle", 0.0}, {"head", 0.2}}});
  CAPTURE(text_of(found));
  REQUIRE(found.modules.size() == 1);
  CHECK(found.modules[0].path == "middle");
  CHECK(found.before.verdict() != Parity::Verdict::harmless);
  CHECK(found.after.verdict() == Parity::Verdict::harmless);
  CHECK(found.share == 0);
  const Tuning none = tune(t.step(1024), {.budget = 0.1, .shares = {{"in", 0.4}, {"middle", 0.4}, {"head", 0.2}}});
  CHECK_MESSAGE(none.modules.empty(), text_of(none));
  CHECK(none.after.verdict() == none.before.verdict());
}

TEST_CASE("tuning changes nothing of a healthy model, and ends with a diagnosis where float32 has the fault, too") {
  manual_seed(1);
  ToTune healthy(faults::training(faults::mlp({}), faults::mse(), DType::f16, 1024, faults::regression({}, 16, 4)));
  const Tuning found = tune(healthy.step(1024));
  CHECK(found.modules.empty());
  CHECK(found.low == DType::f16);
  CHECK(found.after.verdict() == Parity::Verdict::harmless);
  ToTune broken(faults::training(layers({{"in", std::make_shared<Linear>(16, 8)},
                                         {"log", faults::function("Log", [](const Tensor& x) { return log(relu(x)); })},
                                         {"head", std::make_shared<Linear>(8, 4)}}),
                                 faults::mse(), DType::f16, 1024, faults::regression({}, 16, 4)));
  const Tuning fault = tune(broken.step(1024));
  REQUIRE(fault.fault);
  CHECK(fault.fault->cause == "log_domain");
}
