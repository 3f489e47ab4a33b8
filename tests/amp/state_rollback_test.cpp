// SPDX-License-Identifier: Apache-2.0
// What a skipped step leaves behind: the loss scale, and the states that recurrent layers keep.
#include "amp/step/state_rollback.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "amp/step/train_step.h"
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/amp/scaling.h"

using namespace halfstep;
using scaling::bytes;

namespace {

struct Stream {
  std::shared_ptr<LSTM> lstm = std::make_shared<LSTM>(3, 4, LSTMOptions{.batch_first = true, .stateful = true});
  std::shared_ptr<Sequential> net = std::make_shared<Sequential>(lstm, std::make_shared<Linear>(4, 2));
  MSELoss loss;
  SGD opt{net->parameters(), {.lr = 0.1}};
  GradScaler scaler;
  TrainStep step;

  explicit Stream(const GradScalerOptions& scaling = {.init_scale = 256}, int64_t accumulate = 1)
      : scaler(scaling), step(*net, loss, opt, scaler, nullptr, {.amp = DType::f16, .accumulate_steps = accumulate}) {}
  StepResult take(uint64_t seed, double value = 0, double targets = 1) {
    Generator g(seed);
    Tensor x = randn({2, 5, 3}, {}, &g);
    const Tensor y = randn({2, 5, 2}, {}, &g) * targets;
    if (value != 0) x.select(0, 1).fill_(value);
    return step(x, y);
  }
};

}  // namespace

TEST_CASE("a loss that is not finite skips the step, moves no scale and begins the count anew") {
  manual_seed(1);
  Stream s({.init_scale = 256, .growth_interval = 3});
  CHECK(s.take(1).outcome.applied());
  CHECK(s.scaler.get_growth_tracker() == 1);
  for (int i = 0; i < 20; ++i) CHECK_FALSE(s.take(2, NAN).outcome.applied());
  CHECK(s.scaler.get_scale() == 256);
  CHECK(s.scaler.get_growth_tracker() == 0);
  CHECK_FALSE(s.take(3, 0, 1e7).outcome.applied());  // a finite loss whose gradients overflow moves it
  CHECK(s.scaler.get_scale() == 128);
  for (uint64_t i = 4; i < 7; ++i) CHECK(s.take(i).outcome.applied());
  CHECK(s.scaler.get_scale() == 256);
}

TEST_CASE("of an accumulated window, one loss that is not finite is enough, wherever it is") {
  for (const int bad : {0, 1, 2}) {
    manual_seed(1);
    Stream s({.init_scale = 256}, 3);
    for (int i = 0; i < 3; ++i) s.take(uint64_t(i), i == bad ? NAN : 0);
    CHECK(s.scaler.get_scale() == 256);
    StepResult last;
    for (int i = 0; i < 3; ++i) last = s.take(uint64_t(i + 5));
    CHECK(last.outcome.applied());
    for (int i = 0; i < 3; ++i) s.take(uint64_t(i), 0, i == bad ? 1e7 : 1);
    CHECK(s.scaler.get_scale() == 128);
  }
}

TEST_CASE("a kept state that is not finite does not outlive its step; after a mere overflow the stream continues") {
  manual_seed(1);
  Stream s;
  CHECK(s.take(1).outcome.applied());
  const Tensor h = s.lstm->kept_state().h.clone(), c = s.lstm->kept_state().c.clone();
  CHECK_FALSE(s.take(2, NAN).outcome.applied());
  CHECK(bytes(s.lstm->kept_state().h) == bytes(h));
  CHECK(bytes(s.lstm->kept_state().c) == bytes(c));
  CHECK_FALSE(s.take(3, 0, 1e7).outcome.applied());
  CHECK(bytes(s.lstm->kept_state().h) != bytes(h));
  for (uint64_t i = 4; i < 9; ++i) CHECK(s.take(i).outcome.applied());

  Stream first;  // nothing was kept before: it begins at zero
  CHECK_FALSE(first.take(2, NAN).outcome.applied());
  CHECK(max(first.lstm->kept_state().h.abs()).item<float>() == 0);
  CHECK(first.take(3).outcome.applied());
}

TEST_CASE("a stream continues in another precision than it was kept in") {
  manual_seed(1);
  Stream s;
  s.take(1);
  CHECK(s.lstm->kept_state().h.dtype() == DType::f16);
  const Tensor x = randn({2, 5, 3});
  for (const std::optional<DType> low : {std::optional<DType>(), std::optional(DType::bf16), std::optional(DType::f16)}) {
    const Autocast region(Device::cpu, low);
    CHECK_NOTHROW((*s.net)(x));
    CHECK(s.lstm->kept_state().h.dtype() == low.value_or(DType::f32));
  }
}

TEST_CASE("what a forward changed can be set back for a while") {
  manual_seed(1);
  auto norm = std::make_shared<BatchNorm1d>(3);
  auto lstm = std::make_shared<LSTM>(3, 4, LSTMOptions{.batch_first = true, .stateful = true});
  Sequential net(norm, lstm);
  StateRollback states(net);
  net(randn({2, 3}));
  states.save();
  const auto all = [&] { return bytes(norm->running_mean) + bytes(norm->running_var) + bytes(lstm->kept_state().h); };
  const std::string before = all();
  net(randn({2, 3}));
  const std::string after = all();
  CHECK(after != before);
  {
    const StateRollback::Rewound rewound(states);
    CHECK(all() == before);
  }
  CHECK(all() == after);
}

TEST_CASE("a buffer that begins to move, or is written by its memory, gets back its values after a skipped step, too") {
  struct Sometimes : Module {  // a norm that rests, as one whose statistics were frozen or whose layer was dropped, and a count
    Part<Linear> fc{this, "fc", 2, 2};
    Part<BatchNorm1d> norm{this, "norm", 2};
    ModuleBuffer seen = register_buffer("seen", zeros({1}));
    bool rests = true;
    Tensor forward(const Tensor& x) override {
      seen.data_ptr<float>()[0] += 1;
      return rests ? fc(x) : norm(fc(x));
    }
  };
  manual_seed(1);
  const auto net = std::make_shared<Sometimes>();
  const MSELoss loss;
  SGD opt(net->parameters(), {.lr = 0.01});
  GradScaler scaler({.init_scale = 4});
  TrainStep step(*net, loss, opt, scaler, nullptr, {.amp = DType::f16});
  const Tensor x = randn({8, 2}), y = randn({8, 2});
  const auto all = [&] { return bytes(net->norm->running_mean) + bytes(net->norm->running_var) + bytes(net->seen); };
  for (const bool rests : {true, true, false, true, false, false}) {
    net->rests = rests;
    const std::string before = all();
    const int64_t count = net->norm->num_batches_tracked.item<int64_t>();
    CHECK_FALSE(step(x * 1e20, y).outcome.applied());
    CHECK(all() == before);
    CHECK(net->norm->num_batches_tracked.item<int64_t>() == count);
    CHECK(step(x, y).outcome.applied());
    CHECK(all() != before);
    CHECK(net->norm->num_batches_tracked.item<int64_t>() == count + (rests ? 0 : 1));
  }
}
