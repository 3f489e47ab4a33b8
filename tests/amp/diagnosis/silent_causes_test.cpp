// SPDX-License-Identifier: Apache-2.0
// When quiet causes are given; which ones are found is tested with the other faults (diagnose_test.cpp).
#include "amp/diagnosis/silent_causes.h"

#include <doctest/doctest.h>

#include "amp/step/train_step.h"
#include "framework/autograd/autograd.h"
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "optim/optimizers.h"

using namespace halfstep;

namespace {

using Batch = std::function<std::pair<Tensor, Tensor>(int step)>;

// What is given in each observed step: "2 dead_gradient 0.bias".
std::vector<std::string> observed(Module& net, const Loss& loss, std::optional<DType> low, const Batch& batch, int steps,
                                  std::string* text = nullptr) {
  SGD opt(net.parameters(), {.lr = 0.1});
  GradScaler scaler({.enabled = false});
  TrainStep step(net, loss, opt, scaler, nullptr, {.amp = low});
  SilentCauses quiet;
  std::vector<std::string> out;
  for (int i = 0; i < steps; ++i) {
    const auto [x, y] = batch(i);
    step.keep_step(true);
    StepObserver observer(net, Device::cpu, 1, i);
    const StepResult r = step(x, y);
    Observation seen = observer.finish(r.outcome.applied());
    for (const Diagnosis& d : quiet.look(seen, *step.kept_step())) {
      out.push_back(joined(i, ' ', d.cause, ' ', d.where));
      if (text) *text += d.text() + '\n';
    }
  }
  return out;
}

std::pair<Tensor, Tensor> numbers(int step) {
  Generator g(uint64_t(5 + step));
  const Tensor x = randn({8, 4}, {}, &g);
  return {x, randn({8, 4}, {}, &g)};
}

}  // namespace

TEST_CASE("a gradient that is zero in one step is no dead one") {
  for (const std::optional<DType> low : {std::optional(DType::bf16), std::optional<DType>()}) {
    manual_seed(2);
    Sequential net{std::make_shared<Linear>(4, 8), std::make_shared<Linear>(8, 4)};
    const NoGrad off;
    net.parameters()[2].fill_(0.0);  // as adapters begin: the layer before has no gradient yet
    const EnableGrad on;
    CHECK(observed(net, MSELoss(), low, numbers, 5).empty());
  }
}

TEST_CASE("a dead gradient is given once, for all tensors together") {
  for (const std::optional<DType> low : {std::optional(DType::bf16), std::optional<DType>()}) {
    manual_seed(2);
    Sequential net{std::make_shared<Linear>(4, 8), std::make_shared<ReLU>(), std::make_shared<Linear>(8, 4)};
    const NoGrad off;
    net.parameters()[1].fill_(-100.0);
    const EnableGrad on;
    CHECK(observed(net, MSELoss(), low, numbers, 5) == std::vector<std::string>{"1 dead_gradient 0.bias"});
  }
}

TEST_CASE("gradients that are zero as the loss is have another remedy") {
  for (const std::optional<DType> low : {std::optional(DType::bf16), std::optional<DType>()}) {
    Linear net(4, 1);  // one class, of which the loss is 0
    std::string text;
    const Batch one_class = [](int step) { return std::pair{numbers(step).first, zeros({8}, {.dtype = DType::i64})}; };
    CHECK(observed(net, CrossEntropyLoss(), low, one_class, 3, &text) == std::vector<std::string>{"1 dead_gradient bias"});
    CHECK_MESSAGE(text.find("; the loss is 0\n") != std::string::npos, text);
    CHECK(text.find("nothing is left to learn; look at the targets") != std::string::npos);
  }
}

TEST_CASE("a comparison that finds nothing is made again after twice as many observed steps") {
  manual_seed(2);
  int forwards = 0;
  const auto counted = std::make_shared<FunctionLayer>("Counted", [&](const Tensor& x) { return ++forwards, x; });
  Sequential net{std::make_shared<Embedding>(100, 8), counted, std::make_shared<Linear>(8, 4)};
  const Batch words = [](int step) {
    Generator g(uint64_t(9 + step));
    const Tensor x = randint(0, 100, {8}, {.dtype = DType::i64}, &g);
    return std::pair{x, randint(0, 4, {8}, {.dtype = DType::i64}, &g)};
  };
  CHECK(observed(net, CrossEntropyLoss(), DType::bf16, words, 12).empty());
  CHECK(forwards == 12 + 2 * 4);  // compared in steps 0, 2, 5 and 10
}
