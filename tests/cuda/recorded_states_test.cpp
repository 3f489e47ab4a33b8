// SPDX-License-Identifier: Apache-2.0
// Recorded steps of layers that carry a state from batch to batch.
#include <doctest/doctest.h>

#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// Forty steps, an evaluation in between and a new beginning, as a string of all bits that matter.
std::string forty_steps(GraphMode mode, bool* recorded) {
  manual_seed(5);
  const DefaultDevice on(Device::cuda);
  Sequential net(std::make_shared<LSTM>(5, 8, LSTMOptions{.batch_first = true, .output = "last", .stateful = true}),
                 std::make_shared<Linear>(8, 3));
  const CrossEntropyLoss loss;
  AdamW opt(net.parameters(), {.lr = 0.01});
  GradScaler scaler({.enabled = false});
  TrainStep step(net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = DType::bf16, .graph = mode});
  Tensors inputs, targets;
  for (int i = 0; i < 4; ++i) {
    inputs.push_back(randn({4, 3, 5}));
    targets.push_back(randint(0, 3, {4}));
  }
  std::string out;
  for (size_t i = 0; i < 40; ++i) {
    if (i == 20) {
      const FreshStates pass(net);
      const NoGrad off;
      net.eval();
      out += bytes(net(inputs[0]));
      net.train();
    }
    if (i == 30) reset_states(net);
    out += bytes(step(inputs[i % 4], targets[i % 4]).loss);
    if (i % 10 == 9)
      for (const NamedTensor& s : kept_states(net)) out += bytes(s.tensor);
  }
  *recorded = step.is_recorded();
  return out + bytes(net);
}

}  // namespace

TEST_CASE("recorded steps carry a state on as eager ones do") {
  bool recorded = true;
  const std::string eager = forty_steps(GraphMode::off, &recorded);
  CHECK(!recorded);
  const std::string replayed = forty_steps(GraphMode::on, &recorded);
  CHECK(recorded);
  CHECK(replayed == eager);
}
