// SPDX-License-Identifier: Apache-2.0
// Training on the device: as on the CPU, the same bits in every run, and no value read by the host.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Run {
  std::vector<double> losses;
  std::string bits;
};

// `low` f32: without autocast.
Run train(Device device, DType low, int steps, bool adam = false) {
  const auto net = mlp_model(device);
  const Batches batches(device, 4);
  SGD sgd(net->parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3, .nesterov = true});
  AdamW other(net->parameters(), {.lr = 0.01});
  Optimizer& opt = adam ? static_cast<Optimizer&>(other) : sgd;
  const CrossEntropyLoss loss({.label_smoothing = 0.1});
  GradScaler scaler({.init_scale = 4096, .enabled = low == DType::f16});
  CosineAnnealingLR schedule(opt, steps, 1e-3, 3);
  TrainStep step(*net, loss, opt, scaler, &schedule, {.device = device, .amp = if_half(low), .clip_grad_norm = 1});
  Run run;
  Tensors losses;
  for (int i = 0; i < steps; ++i) losses.push_back(step(batches.inputs[size_t(i) % 4], batches.targets[size_t(i) % 4]).loss);
  for (const Tensor& t : losses) run.losses.push_back(t.item<double>());
  run.bits = bytes(*net) + bytes(opt) + bytes(stack(losses));
  return run;
}

}  // namespace

TEST_CASE("losses on the device are the CPU's") {
  for (const DType low : {DType::f32, DType::f16, DType::bf16}) {
    for (const bool adam : {false, true}) {
      CAPTURE(name(low));
      CAPTURE(adam);
      const Run cpu = train(Device::cpu, low, 24, adam), cuda = train(Device::cuda, low, 24, adam);
      CHECK(cpu.losses.back() < 0.85 * cpu.losses.front());
      for (size_t i = 0; i < cpu.losses.size(); ++i) {
        CAPTURE(i);
        const double bound = low == DType::f32 ? 1e-5 : low == DType::f16 ? 1e-3 : 8e-3;
        CHECK(std::fabs(cuda.losses[i] - cpu.losses[i]) <= bound * cpu.losses[i]);
      }
    }
  }
}

TEST_CASE("two runs give the same bits") {
  for (const DType low : {DType::f32, DType::f16, DType::bf16}) {
    CHECK(train(Device::cuda, low, 10).bits == train(Device::cuda, low, 10).bits);
    CHECK(train(Device::cuda, low, 10, true).bits == train(Device::cuda, low, 10, true).bits);
  }
}

TEST_CASE("a training step reads nothing back; asking for the loss does") {
  for (const GraphMode mode : {GraphMode::off, GraphMode::on, GraphMode::automatic}) {
    for (const bool scheduled : {false, true}) {
      const auto net = mlp_model(Device::cuda, 0.2);
      const Batches batches(Device::cuda, 2);
      Adam opt(net->parameters(), {.lr = 0.01});
      const CrossEntropyLoss loss;
      GradScaler scaler({.init_scale = 1024});
      StepLR schedule(opt, 4);
      TrainStep step(*net, loss, opt, scaler, scheduled ? &schedule : nullptr,
                     {.device = Device::cuda, .amp = DType::f16, .clip_grad_norm = 1, .graph = mode});
      // automatic: until the way is decided, steps are timed, and waited for.
      const int first = mode == GraphMode::automatic ? StepRecorder::kDecided : 1;
      for (int i = 0; i < first; ++i) step(batches.inputs[0], batches.targets[0]);
      const uint64_t before = host_reads();
      StepResult last;
      for (size_t i = 0; i < 10; ++i) last = step(batches.inputs[i % 2], batches.targets[i % 2]);
      CHECK(host_reads() == before);
      CHECK(std::isfinite(last.loss.item<float>()));
      CHECK(host_reads() == before + 1);
      CHECK(last.outcome.applied());
      CHECK(host_reads() == before + 2);
      const int64_t steps = first + 10;
      CHECK(schedule.count() == (scheduled ? steps : 0));
      CHECK(opt.lr() == doctest::Approx(scheduled ? 1e-2 * schedule.factor(steps) : 1e-2));
    }
  }
}

TEST_CASE("accumulation on the device equals one batch") {
  const Batches batches(Device::cuda, 1);
  std::vector<std::shared_ptr<Sequential>> nets;
  for (const int64_t k : {1, 4}) {
    const auto net = mlp_model(Device::cuda);
    SGD opt(net->parameters(), {.lr = 0.1});
    const CrossEntropyLoss loss;
    GradScaler scaler({.init_scale = 64});
    TrainStep step(*net, loss, opt, scaler, nullptr, {.device = Device::cuda, .clip_grad_norm = 0.5, .accumulate_steps = k});
    for (int round = 0; round < 3; ++round) {
      for (int64_t i = 0; i < k; ++i)
        step(batches.inputs[0].narrow(0, i * 16 / k, 16 / k), batches.targets[0].narrow(0, i * 16 / k, 16 / k));
    }
    nets.push_back(net);
  }
  for (size_t i = 0; i < 6; ++i) { CHECK(max((nets[0]->parameters()[i] - nets[1]->parameters()[i]).abs()).item<double>() < 1e-6); }
}

TEST_CASE("a window in which no target counts moves nothing but the count of clean steps, with and without a scaler") {
  const Batches batches(Device::cuda, 1);
  const Tensor none = full(batches.targets[0].shape(), -100.0, {.dtype = DType::i64, .device = Device::cuda});
  for (const bool scaled : {false, true}) {
    CAPTURE(scaled);
    const int64_t width = batches.inputs[0].size(1);
    manual_seed(5);
    Sequential net({std::make_shared<BatchNorm1d>(width), std::make_shared<Linear>(width, 10)});
    net.to(Device::cuda);
    AdamW opt(net.parameters(), {.lr = 0.1});
    StepLR schedule(opt, 1, 0.5);
    const CrossEntropyLoss loss;
    GradScaler scaler({.init_scale = 64, .growth_interval = 1000, .enabled = scaled});
    TrainStep step(net, loss, opt, scaler, &schedule,
                   {.device = Device::cuda, .amp = if_half(scaled ? DType::f16 : DType::f32), .accumulate_steps = 2});
    const auto window = [&](const Tensor& first, const Tensor& second) {
      step(batches.inputs[0], first);
      return step(batches.inputs[0], second).outcome.applied();
    };
    CHECK(window(batches.targets[0], batches.targets[0]));
    const std::string before = bytes(net) + bytes(opt);
    CHECK(!window(none, none));
    CHECK(bytes(net) + bytes(opt) == before);
    CHECK(scaler.get_scale() == (scaled ? 64 : 1));
    CHECK(window(none, batches.targets[0]));
    CHECK(bytes(net) + bytes(opt) != before);
    CHECK(scaler.get_scale() == (scaled ? 64 : 1));
  }
}

TEST_CASE("a model moves to the device and back, with its state") {
  const auto net = mlp_model(Device::cpu);
  const std::string before = bytes(*net);
  net->to(Device::cuda);
  for (const Tensor& p : net->parameters()) CHECK(p.device() == Device::cuda);
  CHECK(bytes(*net) == before);
  const auto other = mlp_model(Device::cuda);
  for (const Tensor& p : other->parameters()) {
    const NoGrad off;
    p.zero_();
  }
  other->load_state_dict(mlp_model(Device::cpu)->state_dict());
  CHECK(bytes(*other) == before);
  net->to(Device::cpu);
  CHECK(bytes(*net) == before);
}

TEST_CASE("anomalies: a gradient hook and double backward on the device") {
  const Tensor x = full({3}, 2.0, {.device = Device::cuda, .requires_grad = true});
  int calls = 0;
  x.register_hook([&](const Tensor& g) {
    ++calls;
    return g * 2.0;
  });
  const Tensor y = (x * x * x).sum();
  y.backward();
  CHECK(x.grad().device() == Device::cuda);
  CHECK(x.grad().to_vector<float>() == std::vector<float>(3, 24));
  CHECK(calls == 1);
  const Tensor z = full({3}, 2.0, {.device = Device::cuda, .requires_grad = true});
  const Tensor first = grad({(z * z * z).sum()}, {z}, {}, {.create_graph = true})[0];
  CHECK(grad({first.sum()}, {z})[0].to_vector<float>() == std::vector<float>(3, 12));
}
