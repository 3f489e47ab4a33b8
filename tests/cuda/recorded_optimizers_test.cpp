// SPDX-License-Identifier: Apache-2.0
// Recorded steps of every kind of optimizer, of averages and of schedules that move the momentum.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<Tensor>&)>;

// Thirty steps in float16, some of which overflow, an evaluation with averaged weights in between: all bits that matter.
std::string thirty_steps(GraphMode mode, const Make& make, bool momentum, bool* recorded) {
  manual_seed(7);
  const DefaultDevice on(Device::cuda);
  Sequential net(std::make_shared<Linear>(8, 16), std::make_shared<ReLU>(), std::make_shared<Linear>(16, 4));
  const CrossEntropyLoss loss;
  const auto opt = make(net.parameters());
  Lookahead slow(*opt, {.k = 4});
  WeightAverage average(*opt, {.decay = 0.9, .every = 2});
  GradScaler scaler({.init_scale = 1e7, .growth_interval = 3});
  OneCycleLR schedule(*opt, {.total_steps = 30, .cycle_momentum = momentum});
  TrainStep step(net, loss, *opt, scaler, &schedule, {.device = Device::cuda, .amp = DType::f16, .graph = mode});
  Tensors inputs, targets;
  for (int i = 0; i < 4; ++i) {
    inputs.push_back(randn({8, 8}));
    targets.push_back(randint(0, 4, {8}));
  }
  std::string out;
  for (size_t i = 0; i < 30; ++i) {
    out += bytes(step(inputs[i % 4], targets[i % 4]).loss);
    if (i != 17) continue;
    const WeightAverage::Scope averaged(average);
    const NoGrad off;
    out += bytes(net(inputs[0]));
  }
  *recorded = step.is_recorded();
  out += std::to_string(schedule.count()) + " " + std::to_string(opt->lr()) + " ";
  return out + bytes(*opt) + bytes(net);
}

template <class O>
Make of(typename O::Options options) {
  return [options](const std::vector<Tensor>& params) { return std::make_unique<O>(params, options); };
}

}  // namespace

TEST_CASE("recorded steps give the bits of eager ones, whatever the optimizer keeps") {
  struct Case {
    const char* name;
    Make make;
    bool momentum;
  };
  for (const Case& c : {Case{"SGD", of<SGD>({.lr = 0.1, .momentum = 0.9}), true}, Case{"NAdam", of<NAdam>({}), true},
                        Case{"LAMB", of<LAMB>({.lr = 0.01}), true}, Case{"Muon", of<Muon>({.lr = 0.02}), true},
                        Case{"Adafactor", of<Adafactor>({.lr = 0.02}), false}, Case{"Rprop", of<Rprop>({}), false}}) {
    CAPTURE(c.name);
    bool recorded = true;
    const std::string eager = thirty_steps(GraphMode::off, c.make, c.momentum, &recorded);
    CHECK(!recorded);
    const std::string replayed = thirty_steps(GraphMode::on, c.make, c.momentum, &recorded);
    CHECK(recorded);
    CHECK(replayed == eager);
  }
}
