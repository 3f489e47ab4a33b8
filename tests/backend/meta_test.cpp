// SPDX-License-Identifier: Apache-2.0
// Training on the device that computes nothing: the same tensors as on the CPU, byte for byte, and no values.
#include <doctest/doctest.h>

#include "framework/tensor/memory.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

struct Arm {
  std::optional<DType> amp;
  bool scaled;
};

// Memory statistics of a device after some steps, relative to the time before the model was made.
MemoryStats train(Device device, const Arm& arm, bool adam, const TrainStepOptions& extra, int steps) {
  Allocator& memory = allocator(device);
  const MemoryStats before = memory.stats();
  memory.reset_peak();
  manual_seed(1);
  Sequential net(std::make_shared<Linear>(40, 96), std::make_shared<GELU>(), std::make_shared<Linear>(96, 64),
                 std::make_shared<ReLU>(), std::make_shared<Dropout>(0.1), std::make_shared<Linear>(64, 10));
  net.to(device);
  CrossEntropyLoss loss;
  std::unique_ptr<Optimizer> opt;
  if (adam)
    opt = std::make_unique<AdamW>(net.parameters(), AdamWOptions{.lr = 1e-3});
  else
    opt = std::make_unique<SGD>(net.parameters(), SGDOptions{.lr = 0.1, .momentum = 0.9});
  GradScaler scaler({.enabled = arm.scaled});
  CosineAnnealingLR schedule(*opt, 100);
  TrainStepOptions options = extra;
  options.device = device;
  options.amp = arm.amp;
  TrainStep step(net, loss, *opt, scaler, &schedule, options);
  const Tensor x = zeros({32, 40}, {.device = device}), y = zeros({32}, {.dtype = DType::i64, .device = device});
  for (int i = 0; i < steps; ++i) {
    const StepResult r = step(x, y);
    CHECK((!r.stepped || r.outcome.applied()));
    CHECK(r.loss.shape() == Shape{});
    CHECK(r.loss.device() == device);
    CHECK(r.output.shape() == Shape{32, 10});
    CHECK(r.output.dtype() == arm.amp.value_or(DType::f32));
  }
  MemoryStats after = memory.stats();
  after.live -= before.live;
  after.peak -= before.live;
  for (size_t t = 0; t < size_t(kMemoryTagCount); ++t) {
    after.live_by_tag[t] -= before.live_by_tag[t];
    after.peak_by_tag[t] -= before.live_by_tag[t];
  }
  return after;
}

}  // namespace

TEST_CASE("a training step on meta counts memory as the CPU does") {
  for (const Arm& arm : {Arm{{}, false}, Arm{DType::bf16, false}, Arm{DType::f16, true}}) {
    for (const bool adam : {false, true}) {
      for (const TrainStepOptions& extra :
           {TrainStepOptions{}, TrainStepOptions{.clip_grad_norm = 1}, TrainStepOptions{.accumulate_steps = 3}}) {
        for (const int steps : {1, 4}) {
          CAPTURE(arm.amp.value_or(DType::f32));
          CAPTURE(adam);
          CAPTURE(extra.clip_grad_norm);
          CAPTURE(extra.accumulate_steps);
          const MemoryStats cpu = train(Device::cpu, arm, adam, extra, steps), meta = train(Device::meta, arm, adam, extra, steps);
          for (int t = 0; t < kMemoryTagCount; ++t) {
            if (MemoryTag(t) == MemoryTag::workspace) continue;  // of kernels
            CAPTURE(std::string(name(MemoryTag(t))));
            CHECK(meta.live_by_tag[size_t(t)] == cpu.live_by_tag[size_t(t)]);
            if (arm.amp == DType::f16) continue;  // its products' workspace moves the moment of the peak
            CHECK(meta.peak_by_tag[size_t(t)] == cpu.peak_by_tag[size_t(t)]);
          }
        }
      }
    }
  }
}

TEST_CASE("values cannot be read on meta, and the error says so") {
  const Tensor x = ones({2, 3}, {.device = Device::meta});
  CHECK(x.str() == "tensor(..., device='meta', size=(2, 3))");
  CHECK(x.data_ptr() != nullptr);
  CHECK_THROWS_WITH_AS(x.sum().item<float>(), doctest::Contains("[meta] a tensor on the device meta has no values to read"),
                       MetaError);
  CHECK_THROWS_AS(x.to_vector<float>(), MetaError);
  CHECK_THROWS_AS(x.to(Device::cpu), MetaError);
  CHECK_THROWS_WITH_AS(nonzero(x), doctest::Contains("[nonzero] needs the values of its inputs"), MetaError);
  CHECK(randn({4, 5}).to(Device::meta).matmul(empty({5, 2}, {.device = Device::meta})).shape() == Shape{4, 2});
  CHECK_THROWS_AS(randn({4, 5}).matmul(empty({5, 2}, {.device = Device::meta})), DeviceError);
  CHECK(parse_device("meta") == Device::meta);
}

TEST_CASE("what would not fit into any memory can be counted on meta") {
  Allocator& memory = allocator(Device::meta);
  const size_t before = memory.stats().live;
  {
    const Tensor x = empty({int64_t(1) << 40}, {.device = Device::meta});
    CHECK(memory.stats().live == before + (size_t(1) << 42));
    CHECK(x.mul(2.0).add(x).shape() == x.shape());
  }
  CHECK(memory.stats().live == before);
  CHECK_THROWS_AS(empty({int64_t(1) << 60}, {.device = Device::meta}), Error);
}
