// SPDX-License-Identifier: Apache-2.0
// Inputs and results of a recorded step: batches in any memory, and results for as long as they are held.
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <limits>
#include <thread>

#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr int64_t kBatch = 8, kImageWidth = 12;
using Pair = std::pair<Tensor, Tensor>;

// A model of the kind that `make` builds, trained on batches; the bytes of everything afterwards.
template <class Make>
std::string train(const Make& make, const std::vector<Pair>& batches, DType low, GraphMode mode) {
  manual_seed(5);
  const auto net = make();
  net->to(Device::cuda);
  SGD opt(net->parameters(), {.lr = 0.05, .momentum = 0.9});
  const MSELoss loss;
  GradScaler scaler({.init_scale = 256, .growth_interval = 3, .enabled = low == DType::f16});
  TrainStep step(*net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = if_half(low), .graph = mode});
  std::vector<StepResult> results;
  std::string outputs;
  for (const Pair& b : batches) {
    const bool there = mode == GraphMode::on;  // a recorded step copies batches on the host
    results.push_back(step(there ? b.first : b.first.to(Device::cuda), b.second));
    outputs += bytes(results.back().output);
  }
  CHECK(step.is_recorded() == (mode == GraphMode::on));
  for (const StepResult& r : results) outputs += bytes(r.loss) + (r.outcome.applied() ? "a" : "s");
  return outputs + bytes(*net) + bytes(opt);
}

std::shared_ptr<Module> plain() {
  return std::make_shared<Sequential>(std::make_shared<Linear>(kImageWidth, 24), std::make_shared<ReLU>(),
                                      std::make_shared<Linear>(24, kImageWidth));
}

template <class Make>
void same_as_eager(const Make& make, const std::vector<Pair>& batches) {
  for (const DType low : {DType::f16, DType::bf16, DType::f32}) {
    CAPTURE(name(low));
    const bool same = train(make, batches, low, GraphMode::on) == train(make, batches, low, GraphMode::off);
    CHECK(same);
  }
}

}  // namespace

// Targets are aligned: an eager loss of one that is not sums in another order than that of its aligned copy.
TEST_CASE("recorded steps take batches from anywhere") {
  manual_seed(9);
  const Tensor all = randn({40 * kBatch, kImageWidth}, {.device = Device::cuda}), flat = randn({4096}, {.device = Device::cuda});
  std::vector<Pair> batches;
  const auto row = [&](int64_t i) { return all.narrow(0, i * kBatch, kBatch); };
  for (int64_t i = 0; i < 5; ++i) batches.emplace_back(row(i), row(i + 1));
  for (int64_t i = 5; i < 8; ++i) {
    batches.emplace_back(row(i).clone(), row(i + 1).clone());  // memory that is free again after the step
    batches.emplace_back(row(i), row(i));                      // both the same
    batches.emplace_back(row(i).to(Device::cpu), row(i));      // on the host
    // Transposed.
    batches.emplace_back(all.narrow(0, 0, kImageWidth * kBatch).narrow(1, i, 1).reshape({kImageWidth, kBatch}).t(), row(i));
    // Not aligned.
    batches.emplace_back(flat.narrow(0, i, kBatch * kImageWidth).reshape({kBatch, kImageWidth}), row(i));
    batches.emplace_back(row(i).to(Device::cpu).t().contiguous().t(), row(3));  // on the host, transposed
  }
  const Tensor bad = row(2).clone();
  bad[1][1].fill_(std::numeric_limits<double>::infinity());
  batches.emplace_back(bad, row(3));
  batches.emplace_back(row(2), row(3));
  same_as_eager(plain, batches);
}

TEST_CASE("a step that keeps its input finds the batch there") {
  struct Keeps : Module {
    explicit Keeps(std::shared_ptr<Module> m) : inner(this, "inner", std::move(m)) {}
    Tensor forward(const Tensor& x) override {
      kept = x.detach();
      return inner(x);
    }
    Part<Module> inner;
    Tensor kept;
  };
  Keeps net(plain());
  net.to(Device::cuda);
  SGD opt(net.parameters(), {.lr = 0.05});
  const MSELoss loss;
  GradScaler scaler;
  TrainStep step(net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = DType::f16, .graph = GraphMode::on});
  for (int i = 0; i < 8; ++i) {
    const Tensor x = randn({kBatch, kImageWidth}, {.device = Device::cuda});
    step(x, x);
    CHECK(bytes(net.kept) == bytes(x));
  }
  CHECK(step.is_recorded());
}

TEST_CASE("a step whose output is its input") {
  struct Hands : Module {  // its parameter takes part, its output does not depend on it
    Hands() : weight(register_parameter("weight", ones({kImageWidth}))) {}
    Tensor forward(const Tensor& x) override { return x + (weight - weight.detach()); }
    Parameter weight;
  };
  manual_seed(4);
  std::vector<Pair> batches;
  for (int i = 0; i < 8; ++i)
    batches.emplace_back(randn({kBatch, kImageWidth}, {.device = Device::cuda}),
                         randn({kBatch, kImageWidth}, {.device = Device::cuda}));
  same_as_eager([] { return std::make_shared<Hands>(); }, batches);
}

TEST_CASE("losses and outcomes of recorded steps stay what they were, over more than two rings of them") {
  manual_seed(3);
  std::vector<Pair> batches;
  for (int i = 0; i < 3; ++i)
    batches.emplace_back(randn({1, kImageWidth}, {.device = Device::cuda}), randn({1, kImageWidth}, {.device = Device::cuda}));
  Tensor bad = batches[0].first.clone();
  bad[0][0].fill_(std::numeric_limits<double>::quiet_NaN());
  std::string want;
  for (const GraphMode mode : {GraphMode::off, GraphMode::on}) {
    manual_seed(5);
    Linear net(kImageWidth, kImageWidth);
    net.to(Device::cuda);
    SGD opt(net.parameters(), {.lr = 0.001});
    const MSELoss loss;
    GradScaler scaler({.init_scale = 64});
    TrainStep step(net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = DType::f16, .graph = mode});
    std::vector<StepResult> kept;
    for (size_t i = 0; i < 2 * StepRecorder::kRing + 40; ++i) {
      StepResult r = step(i % 50 == 17 ? bad : batches[i % 3].first, batches[i % 3].second);
      if (i < 20 || i % 3 != 0) kept.push_back(std::move(r));  // some are freed
    }
    std::string got;
    for (const StepResult& r : kept) got += bytes(r.loss) + (r.outcome.overflow() ? "s" : "a");
    if (mode == GraphMode::off) want = got;
    const bool same = got == want;
    CHECK(same);
    CHECK(got.find('s') != std::string::npos);
  }
}

TEST_CASE("automatic: whichever way was faster stays") {
  using Times = StepRecorder::StepTimes;
  CHECK(Times{2e-3, 1e-3}.replaying_pays());
  CHECK(!Times{1e-3, 2e-3}.replaying_pays());
  CHECK(!Times{1e-3, 1e-3}.replaying_pays());  // a recording costs memory

  struct Slow : MSELoss {  // work of the host's, which a replay does not repeat
    Tensor operator()(const Tensor& x, const Tensor& y) const override {
      std::this_thread::sleep_for(std::chrono::seconds(1));  // longer than a replay on a busy machine
      return MSELoss::operator()(x, y);
    }
  };
  const Slow loss;
  Linear net(kImageWidth, kImageWidth);
  net.to(Device::cuda);
  SGD opt(net.parameters(), {.lr = 0.001});
  GradScaler scaler;
  TrainStep step(net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = DType::f16});
  const Tensor x = randn({kBatch, kImageWidth}, {.device = Device::cuda});
  for (int i = 1; i <= StepRecorder::kDecided + 2; ++i) {
    step(x, x);
    CHECK(step.is_recorded() == (i > StepRecorder::kWarmup + StepRecorder::kTimed));
  }
}
