// SPDX-License-Identifier: Apache-2.0
// Steps that are not recorded: those that read values, fail halfway, or may decide on the host.
#include <doctest/doctest.h>

#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Reads : Module {  // a step that cannot be recorded
  explicit Reads(std::shared_ptr<Module> m) : inner(this, "inner", std::move(m)) {}
  Tensor forward(const Tensor& x) override {
    ++calls;
    return inner(x) * (x.sum().item<float>() > 1e30f ? 0.0 : 1.0);
  }
  Part<Module> inner;
  int calls = 0;
};

}  // namespace

TEST_CASE("a step that reads a value runs eagerly") {
  const Batches batches(Device::cuda, 1);
  std::string want;
  for (const GraphMode mode : {GraphMode::off, GraphMode::on}) {
    Reads net(mlp_model(Device::cuda));
    Adam opt(net.parameters(), {.lr = 0.01});
    const CrossEntropyLoss loss;
    GradScaler scaler({.init_scale = 256});
    TrainStep step(net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = DType::f16, .graph = mode});
    for (int i = 0; i < 8; ++i) step(batches.inputs[0], batches.targets[0]);
    CHECK(!step.is_recorded());
    CHECK(net.calls <= 9);  // one of them for the attempt
    const std::string got = bytes(net) + bytes(opt);
    if (mode == GraphMode::off) want = got;
    CHECK(got == want);
  }
}

TEST_CASE("an optimizer that reads a value runs eagerly, though its gradients were unscaled when the recording failed") {
  struct Reading : SGD {
    using SGD::SGD;
    std::optional<Tensor> step(const Closure& closure) override {
      last = parameters()[0].detach().sum().item<float>();
      return SGD::step(closure);
    }
    float last = 0;
  };
  const Batches batches(Device::cuda, 1);
  std::string want;
  for (const GraphMode mode : {GraphMode::off, GraphMode::on}) {
    const auto net = mlp_model(Device::cuda);
    Reading opt(net->parameters(), {.lr = 0.1});
    const CrossEntropyLoss loss;
    GradScaler scaler({.init_scale = 256});
    TrainStep step(*net, loss, opt, scaler, nullptr,
                   {.device = Device::cuda, .amp = DType::f16, .clip_grad_norm = 1, .graph = mode});
    for (int i = 0; i < 8; ++i) CHECK_NOTHROW(step(batches.inputs[0], batches.targets[0]));
    CHECK(!step.is_recorded());
    const std::string got = bytes(*net) + bytes(opt);
    if (mode == GraphMode::off) want = got;
    CHECK(got == want);
  }
}

TEST_CASE("a weight written just before a recording that fails is cast anew") {
  struct Sometimes : Module {
    explicit Sometimes(std::shared_ptr<Module> m) : inner(this, "inner", std::move(m)) {}
    Tensor forward(const Tensor& x) override {
      const Tensor y = inner(x);
      if (reads) y.sum().item<float>();
      return y;
    }
    Part<Module> inner;
    bool reads = false;
  };
  const Batches batches(Device::cuda, 1);
  std::string want;
  for (const GraphMode mode : {GraphMode::off, GraphMode::on}) {
    Sometimes net(mlp_model(Device::cuda));
    SGD opt(net.parameters(), {.lr = 0.01});
    const CrossEntropyLoss loss;
    GradScaler scaler({.init_scale = 64});
    TrainStep step(net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = DType::f16, .graph = mode});
    for (int i = 0; i < 6; ++i) {
      net.reads = i >= StepRecorder::kWarmup;
      if (i == StepRecorder::kWarmup) {
        const NoGrad off;
        net.parameters()[0].mul_(0.5);
      }
      step(batches.inputs[0], batches.targets[0]);
    }
    const std::string got = bytes(net);
    if (mode == GraphMode::off) want = got;
    CHECK(got == want);
  }
}

TEST_CASE("a module that may decide on the host is recorded only when asked") {
  struct EverySecond : Module {
    explicit EverySecond(std::shared_ptr<Module> m) : inner(this, "inner", std::move(m)) {}
    Tensor forward(const Tensor& x) override { return inner(++calls % 2 ? x : x * 0.5); }
    Part<Module> inner;
    int calls = 0;
  };
  const Batches batches(Device::cuda, 1);
  std::string want;
  for (const GraphMode mode : {GraphMode::off, GraphMode::automatic, GraphMode::on}) {
    EverySecond net(mlp_model(Device::cuda));
    CHECK(!net.is_recordable());
    CHECK(net.inner->is_recordable());
    SGD opt(net.parameters(), {.lr = 0.1});
    const CrossEntropyLoss loss;
    GradScaler scaler;
    TrainStep step(net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = DType::f16, .graph = mode});
    for (int i = 0; i < 8; ++i) step(batches.inputs[0], batches.targets[0]);
    CHECK(step.is_recorded() == (mode == GraphMode::on));
    const std::string got = bytes(net);
    if (mode == GraphMode::off) want = got;
    if (mode == GraphMode::automatic) CHECK(got == want);
  }
}
