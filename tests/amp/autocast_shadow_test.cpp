// SPDX-License-Identifier: Apache-2.0
// Shadow weights: the 16-bit copy beside a parameter. At most one, never stale, never cast in a steady training step.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "framework/autograd/autograd.h"
#include "framework/tensor/memory.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/amp/autocast_calls.h"

using namespace halfstep;
using namespace halfstep::calls;

namespace {

size_t shadow_bytes() { return allocator(Device::cpu).stats().live_by_tag[size_t(MemoryTag::shadows)]; }

Tensor low_linear(const Tensor& x, const Tensor& w, const AutocastOptions& options = {}) {
  const Autocast region(Device::cpu, options);
  return linear(x, w);
}

uint64_t casts_of(const std::function<void()>& f) {
  const uint64_t before = autocast::cast_count();
  f();
  return autocast::cast_count() - before;
}

}  // namespace

TEST_CASE("amp 47: an updated weight is used by the next region") {
  manual_seed(20);
  const Tensor x = rand({4, 8}).to(DType::bf16), w = leaf({3, 8});
  const Tensor before = low_linear(x, w);
  {
    const NoGrad off;
    w.mul_(2.0);
  }
  CHECK(!autocast::shadow_of(w).defined());
  CHECK(bitwise(low_linear(x, w), linear(x, w.to(DType::bf16))));
  CHECK(bitwise(low_linear(x, w), before * 2.0));
}

TEST_CASE("an update inside the region is seen too, through every kind of in-place write") {
  const Tensor x = ones({1, 4}, {.dtype = DType::bf16}), w = zeros({1, 4}, {.requires_grad = true});
  const Autocast region(Device::cpu);
  const NoGrad off;
  auto value = [&] { return linear(x, w).item<float>(); };
  CHECK(value() == 0);
  w.fill_(1);
  CHECK(value() == 4);
  w.detach().add_(1.0);
  CHECK(value() == 8);
  w.copy_(full({4}, 3.0));
  CHECK(value() == 12);
  w.narrow(1, 0, 2).zero_();
  CHECK(value() == 6);
  w.detach()[0][3] += full({}, 1.0);
  CHECK(value() == 7);
  manual_seed(1);
  uniform_(w, 5, 5);
  CHECK(value() == 20);
}

TEST_CASE("a weight that is written through its memory is seen by every later region, also through a pointer that is kept") {
  const Tensor x = ones({1, 4}, {.dtype = DType::bf16});
  const auto value = [&](const Tensor& w) { return low_linear(x, w).item<float>(); };
  const Tensor w = ones({1, 4}, {.requires_grad = true}), v = ones({1, 4}, {.requires_grad = true});
  std::vector<float> memory(4, 1);
  const Tensor blob = from_blob(memory.data(), {1, 4}).set_requires_grad();
  CHECK(value(w) + value(v) + value(blob) == 12);
  float* const kept = w.data_ptr<float>();
  const auto matrix = static_cast<float*>(v.detach().data_ptr());  // of a view
  for (int i = 2; i < 5; ++i) {
    kept[0] = float(i);
    matrix[1] = float(10 * i);
    memory[2] = float(100 * i);
    CHECK(value(w) == float(3 + i));
    CHECK(value(v) == float(3 + 10 * i));
    CHECK(value(blob) == doctest::Approx(3 + 100 * i).epsilon(0.01));
  }
  CHECK(!autocast::shadow_of(w).defined());
  const Tensor read = leaf({3, 4});
  CHECK(casts_of([&] { low_linear(x, read); }) == 1);
  CHECK(read.const_data_ptr<float>() != nullptr);
  CHECK(casts_of([&] { low_linear(x, read); }) == 0);  // reading costs nothing
}

TEST_CASE("what InferenceMode keeps of weights that are written through their memory is not stale") {
  Linear wide(64, 64, {.bias = false});
  Sequential convolved(make<Conv2d>(3, 4, 3), make<BatchNorm2d>(4));
  convolved.eval();
  const Tensor x = rand({32, 64}), image = rand({1, 3, 8, 8});
  const InferenceMode on;
  for (int i = 0; i < 4; ++i) wide(x), convolved(image);
  wide.weight.data_ptr<float>()[5] += 1;
  convolved.at<Conv2d>(0).weight.data_ptr<float>()[5] += 1;
  for (int i = 0; i < 3; ++i) {
    CHECK(allclose(wide(x), matmul(x, wide.weight.clone().t()), 1e-4, 1e-4));
    const Conv2d& conv = convolved.at<Conv2d>(0);
    CHECK(allclose(convolved(image), conv2d(image, conv.weight.clone(), conv.bias.clone()) / std::sqrt(1 + 1e-5), 1e-3, 1e-4));
    wide.weight.data_ptr<float>()[7] += 1;
    convolved.at<Conv2d>(0).weight.data_ptr<float>()[7] += 1;
  }
}

TEST_CASE("a weight used again is not cast again, in one region or the next") {
  const Tensor x = rand({4, 8}).to(DType::bf16), w = leaf({3, 8});
  CHECK(casts_of([&] { low_linear(x, w); }) == 1);
  CHECK(casts_of([&] {
          const Autocast region(Device::cpu);
          for (int i = 0; i < 5; ++i) linear(x, w);
        }) == 0);
  const Tensor shadow = autocast::shadow_of(w);
  REQUIRE(shadow.defined());
  CHECK(bitwise(shadow, w.detach().to(DType::bf16)));
  CHECK(!shadow.requires_grad());  // holds no graph
}

TEST_CASE("cache_enabled = false casts at each use and keeps nothing") {
  const Tensor x = rand({4, 8}).to(DType::bf16), w = leaf({3, 8});
  const size_t before = shadow_bytes();
  CHECK(casts_of([&] {
          const Autocast region(Device::cpu, {.cache_enabled = false});
          for (int i = 0; i < 3; ++i) linear(x, w);
        }) == 3);
  CHECK(shadow_bytes() == before);
  CHECK(!autocast::shadow_of(w).defined());
  // Gradients and values are those with the cache.
  const Tensor y = low_linear(x, w, {.cache_enabled = false}), z = low_linear(x, w);
  CHECK(bitwise(y, z));
  const Tensor a = grad({sum(y)}, {w})[0], b = grad({sum(z)}, {w})[0];
  CHECK(bitwise(a, b));
}

TEST_CASE("the cache flag of a region without one is the enclosing region's") {
  const Autocast outer(Device::cpu, {.cache_enabled = false});
  const Autocast inner(Device::cpu);
  CHECK(!autocast::is_cache_enabled());
  const Autocast on(Device::cpu, {.cache_enabled = true});
  CHECK(autocast::is_cache_enabled());
}

TEST_CASE("frozen weights, activations, views and float64 weights keep no copy") {
  const Tensor x = rand({4, 8}).to(DType::bf16);
  const Tensor frozen = randn({3, 8}), w = leaf({3, 8}), wide = leaf({8, 3}), d = leaf({3, 8}, DType::f64);
  const size_t before = shadow_bytes();
  CHECK(casts_of([&] { low_linear(x, frozen), low_linear(x, frozen); }) == 2);
  CHECK(casts_of([&] { low_linear(x, w * 1.0), low_linear(x, w * 1.0); }) == 2);
  CHECK(casts_of([&] { low_linear(x, wide.t()), low_linear(x, wide.t()); }) == 2);
  CHECK(casts_of([&] { CHECK_THROWS_AS(low_linear(x, d), DTypeError); }) == 0);
  CHECK(shadow_bytes() == before);
}

TEST_CASE("float32 casts are never kept") {
  const Tensor w = leaf({8, 8}, DType::bf16);
  const Autocast region(Device::cpu);
  CHECK(casts_of([&] { exp(w), exp(w); }) == 2);
}

TEST_CASE("at most one copy per parameter, and none after drop_shadow or the parameter's end") {
  const Tensor x = rand({4, 256}).to(DType::bf16);
  const size_t before = shadow_bytes();
  {
    const Tensor w = leaf({256, 256});
    for (int i = 0; i < 4; ++i) {
      const DType dtype = i % 2 ? DType::f16 : DType::bf16;
      CHECK(low_linear(x, w, {.dtype = dtype}).dtype() == dtype);
      CHECK(autocast::shadow_of(w).dtype() == dtype);
      CHECK(shadow_bytes() - before == 256 * 256 * 2);
      const NoGrad off;
      w.mul_(1.5);
      CHECK(shadow_bytes() - before == 256 * 256 * 2);
    }
    autocast::drop_shadow(w);
    CHECK(shadow_bytes() == before);
    low_linear(x, w);
    CHECK(shadow_bytes() - before == 256 * 256 * 2);
  }
  CHECK(shadow_bytes() == before);
}

TEST_CASE("a graph that used the old weight keeps it") {
  manual_seed(21);
  const Tensor x = leaf({4, 8}, DType::bf16), w = leaf({3, 8});
  const Tensor y = low_linear(x, w);
  const Tensor old = w.detach().to(DType::bf16);
  {
    const NoGrad off;
    w.mul_(2.0);
  }
  CHECK(bitwise(low_linear(x, w), linear(x, w.to(DType::bf16))));  // a copy of its own
  const Tensor g = ones({4, 3}, {.dtype = DType::bf16});
  y.backward(g);
  CHECK(bitwise(x.grad(), mm(g, old)));
}

TEST_CASE("a training step casts activations only: the optimizer writes the weights' copies") {
  manual_seed(22);
  for (bool adam : {false, true}) {
    CAPTURE(adam);
    Sequential net(std::make_shared<Linear>(8, 16), std::make_shared<ReLU>(), std::make_shared<Linear>(16, 4));
    std::unique_ptr<Optimizer> opt;
    if (adam)
      opt = std::make_unique<Adam>(net.parameters());
    else
      opt = std::make_unique<SGD>(net.parameters(), SGDOptions{.lr = 0.1, .momentum = 0.9});
    const Tensor x = rand({4, 8}), target = rand({4, 4});
    auto step = [&] {
      opt->zero_grad();
      Tensor loss;
      {
        const Autocast region(Device::cpu);
        loss = mse_loss(net(x), target);
      }
      loss.backward();
      opt->step();
    };
    CHECK(casts_of(step) == 5);  // x, two weights, two biases
    for (int i = 0; i < 3; ++i) {
      CHECK(casts_of(step) == 1);  // x
      for (const Tensor& p : net.parameters()) {
        const Tensor shadow = autocast::shadow_of(p);
        REQUIRE(shadow.defined());
        CHECK(bitwise(shadow, p.detach().to(DType::bf16)));
      }
    }
  }
}

TEST_CASE("an optimizer step between forward and backward is noticed") {
  const Tensor x = leaf({4, 8}), w = leaf({3, 8});
  SGD opt({w}, {.lr = 0.1});
  const Tensor y = low_linear(x, w);
  w.set_grad(ones({3, 8}));
  opt.step();
  CHECK_THROWS_WITH_AS(sum(y).backward(), doctest::Contains("was modified in place after linear saved it"), AutogradError);
}

TEST_CASE("threads may run one model in regions of their own") {
  const Tensor x = randn({2, 8});
  for (int round = 0; round < 30; ++round) {
    std::vector<Linear> layers;
    for (int i = 0; i < 8; ++i) layers.emplace_back(8, 8);
    std::vector<std::thread> threads;
    std::vector<std::vector<float>> results(4);
    std::atomic<size_t> waiting{results.size()};
    for (auto& result : results)
      threads.emplace_back([&] {
        for (--waiting; waiting > 0;) std::this_thread::yield();
        const Autocast region(Device::cpu, DType::bf16);
        Tensor y = x;
        for (Linear& layer : layers) y = layer(y);
        y.sum().backward();
        result = y.to_vector<float>();
      });
    for (std::thread& t : threads) t.join();
    for (const auto& result : results) CHECK(result == results[0]);
  }
}
