// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/observation.h"

#include <doctest/doctest.h>

#include <cmath>

#include "amp/autocast/autocast.h"
#include "amp/step/train_step.h"
#include "framework/autograd/autograd.h"
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "optim/optimizers.h"

using namespace halfstep;

namespace {

// The sum of what a layer of 2 inputs and 1 output gives: its gradient is the sum of the inputs.
Observation of_sum(const Tensor& x, std::optional<DType> low, double scale) {
  Linear net(2, 1);
  GradScaler scaler({.init_scale = scale});
  StepObserver observer(net, Device::cpu, scale);
  observer.open();
  Tensor loss;
  {
    const Autocast region(Device::cpu, low);
    loss = sum(net(x));
  }
  const LowGradients in_16_bits(true);
  scaler.backward(loss);
  return observer.finish(false);
}

}  // namespace

TEST_CASE("an observation has the exponents of true gradients, and the shares of zeros and of what overflows") {
  for (const double scale : {1.0, 256.0}) {
    const Observation seen = of_sum(tensor({{0.25, 1.5}, {0.0, 0.25}}), {}, scale);
    REQUIRE(seen.tensors.size() == 2);
    const TensorObservation& w = seen.tensors[0];
    CHECK(w.name == "weight");
    CHECK(w.exponents.first == -2);
    CHECK(w.exponents.counts == std::vector<int64_t>{1, 0, 1});  // 0.25 and 1.75
    CHECK(w.zero == 0);
    CHECK_FALSE(seen.room);  // nothing is in float16
  }
  CHECK(of_sum(tensor({{0.0, 1.0}}), {}, 256).tensors[0].zero == 0.5);
  const Observation high = of_sum(tensor({{1.0, 300.0}}), DType::f16, 256);
  CHECK(high.tensors[0].overflow == 0.5);
  CHECK_FALSE(high.room);
}

TEST_CASE("the room is how often the scale can be doubled before a float16 gradient overflows") {
  const Tensor x = tensor({{0.25, 1.5}});
  const Observation seen = of_sum(x, DType::f16, 256);
  REQUIRE(seen.room);
  CHECK(*seen.room == doctest::Approx(std::log2(65504 / (1.5 * 256))));
  const double doublings = std::floor(*seen.room);
  CHECK(of_sum(x, DType::f16, std::ldexp(256, int(doublings))).tensors[0].overflow == 0);
  CHECK(of_sum(x, DType::f16, std::ldexp(256, int(doublings) + 1)).tensors[0].overflow > 0);
}

TEST_CASE("lost updates are counted where an element has a gradient") {
  Linear net(2, 2);
  net.to(DType::bf16);
  const auto set = [](const Tensor& t, double v) {
    const NoGrad off;
    t.fill_(v);
  };
  const auto observed = [&](double lr) {
    set(net.weight, 1), set(net.bias, 1);
    SGD opt(net.parameters(), {.lr = lr});
    StepObserver observer(net, Device::cpu, 1);
    opt.zero_grad();
    sum(net(tensor({{0.0, 1.0}}).to(DType::bf16))).backward();
    opt.step();
    return observer.finish(true).tensors;
  };
  const auto small = observed(1e-3);  // half a last bit of 1 is 2^-9 downwards
  CHECK(small[0].with_gradient == 2);
  CHECK(small[0].lost == 1.0);
  CHECK(small[0].update == 0.0);
  const auto large = observed(0.25);
  CHECK(large[0].lost == 0.0);
  CHECK(*large[0].update == doctest::Approx(std::sqrt(2 * 0.25 * 0.25 / 4)));
  CHECK_FALSE(large[0].lost_16);  // there is no 16-bit copy
}

TEST_CASE("old values are copied within a bound, in turn, and of a large tensor in part") {
  Sequential net{{"a", std::make_shared<Linear>(64, 64, false)},
                 {"b", std::make_shared<Linear>(64, 64, false)},
                 {"c", std::make_shared<Linear>(64, 256, false)}};
  SGD opt(net.parameters(), {.lr = 0.1});
  const Tensor x = randn({4, 64});
  const auto looked_at = [&](int64_t part, size_t bytes) {
    StepObserver observer(net, Device::cpu, 1, part, bytes);
    opt.zero_grad();
    sum(square(net(x))).backward();
    opt.step();
    std::string out;
    for (const TensorObservation& t : observer.finish(true).tensors)
      if (t.lost) out += joined(t.name[0], t.with_gradient);
    return out;
  };
  CHECK(looked_at(0, size_t(1) << 20) == "a4096b4096c16384");
  CHECK(looked_at(0, 32768) == "a4096b4096");
  CHECK(looked_at(1, 32768) == "c8192");
  CHECK(looked_at(2, 32768) == "a4096b4096");
}

TEST_CASE("observed steps have the bits of plain ones") {
  for (const std::optional<DType> low : {std::optional(DType::f16), std::optional(DType::bf16), std::optional<DType>()}) {
    const auto trained = [&](bool observes) {
      manual_seed(3);
      Sequential net{std::make_shared<Linear>(8, 16), std::make_shared<ReLU>(), std::make_shared<Dropout>(0.2),
                     std::make_shared<Linear>(16, 8)};
      const MSELoss loss;
      AdamW opt(net.parameters(), {.lr = 0.01});
      GradScaler scaler({.init_scale = 1024, .enabled = low == DType::f16});
      TrainStep step(net, loss, opt, scaler, nullptr, {.amp = low});
      Generator g(7);
      for (int i = 0; i < 6; ++i) {
        std::optional<StepObserver> observer;
        if (observes) observer.emplace(net, Device::cpu, scaler.get_scale(), i);
        if (observes) observer->open();
        const StepResult r = step(randn({5, 8}, {}, &g), randn({5, 8}, {}, &g));
        if (observes) CHECK(observer->finish(r.outcome.applied()).tensors.size() == 4);
      }
      std::vector<float> out;
      for (const Tensor& p : net.parameters())
        for (const float v : p.detach().to_vector<float>()) out.push_back(v);
      return out;
    };
    CHECK(trained(true) == trained(false));
  }
}
