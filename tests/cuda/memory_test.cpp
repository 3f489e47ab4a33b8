// SPDX-License-Identifier: Apache-2.0
// Tensors on the device: creation, copies both ways, printing, errors, memory running out.
#include "framework/tensor/memory.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("creation gives the CPU's values") {
  Tensors made[2];
  for (Device device : kBoth) {
    made[device.is_cuda()] = {zeros({3, 4}, {.device = device}),
                              full({5}, -1.5, {.dtype = DType::f16, .device = device}),
                              arange(0.0, 9, 0.5, {.dtype = DType::f32, .device = device}),
                              arange(7, {.dtype = DType::i64, .device = device}),
                              eye(3, {.device = device}),
                              tensor({1, 2, 3}, {.dtype = DType::bf16, .device = device}),
                              from_vector<int64_t>({4, 5, 6}, {3}, device),
                              scalar(2.5, {.device = device}),
                              empty({0, 3}, {.device = device})};
  }
  for (size_t k = 0; k < made[0].size(); ++k) {
    CAPTURE(k);
    CHECK(made[1][k].device() == Device::cuda);
    CHECK(bytes(made[1][k]) == bytes(made[0][k]));
  }
  CHECK(made[1][7].str() == "tensor(2.5000, device='cuda:0')");
  CHECK(made[1][3].to_vector<int64_t>() == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6});
}

TEST_CASE("a C++ number takes no memory of the device, and gives the CPU's bits") {
  manual_seed(5);
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i64, DType::boolean}) {
    const Tensor here = (randn({5, 24}) * 4.0).to(dtype), there = here.to(Device::cuda);
    const Tensor mask_here = here.gt(0.0), mask_there = mask_here.to(Device::cuda);
    const auto same = [&](auto f, size_t most) {
      const size_t before = allocator(Device::cuda).stats().allocations;
      const Tensor y = f(there, mask_there);
      CHECK(allocator(Device::cuda).stats().allocations - before <= most);
      CHECK(y.device() == Device::cuda);
      const Tensor want = f(here, mask_here);
      CHECK(y.dtype() == want.dtype());
      CHECK(bytes(y) == bytes(want));
    };
    CAPTURE(dtype);
    same([](const Tensor& x, const Tensor&) { return x * 0.1; }, 1);
    same([](const Tensor& x, const Tensor&) { return x + 3.0; }, 1);
    if (dtype != DType::boolean) same([](const Tensor& x, const Tensor&) { return 2.0 - x; }, 1);
    same([](const Tensor& x, const Tensor&) { return x.le(0.1); }, 1);
    same([](const Tensor& x, const Tensor& mask) { return where(mask, x, -1.0); }, 1);
    same([](const Tensor& x, const Tensor& mask) { return where(mask, 0.1, x); }, 1);
    same([](const Tensor& x, const Tensor& mask) { return x.masked_fill(mask, 2.75); }, 1);
    same([](const Tensor& x, const Tensor&) { return x.expand({2, 5, 24}).tril(); }, 6);  // the mask too
    same([](const Tensor& x, const Tensor& mask) { return x.clone().masked_fill_(mask, -0.1); }, 1);
    if (is_floating(dtype)) same([](const Tensor& x, const Tensor&) { return x.clone().mul_(0.1); }, 1);
  }
  // Through a recorded backward, and in a region where the number comes first.
  for (Device device : kBoth) {
    const Tensor x = tensor({0.5, 2, 3}, {.device = device, .requires_grad = true});
    const Tensor g = grad({pow(x, 3.0).sum()}, {x}, {}, {.create_graph = true})[0];
    CHECK(grad({g.sum()}, {x})[0].to_vector<float>() == std::vector<float>{3, 12, 18});
    const Autocast region(device, DType::bf16);
    CHECK(pow(2.0, tensor({1, 2}, {.dtype = DType::bf16, .device = device})).dtype() == DType::f32);
  }
  // Numbers are compared in the dtype of the other operand.
  for (Device device : kBoth)
    for (DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
      CHECK(tensor({0.1}, {.dtype = dtype, .device = device}).eq(0.1).item<bool>());
}

TEST_CASE("copies both ways, of any layout and dtype") {
  manual_seed(3);
  const Tensor base = randn({6, 8, 4});
  const Tensor views[] = {base, base.permute({2, 0, 1}), base.slice(1, 1, 8, 3), base[2].t(), base.select(2, 1).expand({2, 6, 8})};
  for (const Tensor& x : views) {
    const Tensor there = x.to(Device::cuda);
    CHECK(there.device() == Device::cuda);
    CHECK(bytes(there) == bytes(x));
    for (DType dtype : {DType::f64, DType::f16, DType::bf16, DType::i64}) CHECK(bytes(there.to(dtype)) == bytes(x.to(dtype)));
    // Into memory with gaps, on both devices.
    for (Device device : kBoth) {
      const Shape shape = x.shape();
      Shape wide = shape;
      wide[0] *= 2;
      const Tensor target = zeros(wide, {.dtype = DType::f16, .device = device}).slice(0, 0, wide[0], 2);
      for (const Tensor& source : {x, there}) {
        target.fill_(0);
        target.copy_(source);
        CHECK(bytes(target) == bytes(x.to(DType::f16)));
      }
    }
  }
}

TEST_CASE("a large upload goes through in parts, and the source may change at once") {
  std::vector<float> values(700'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(i);
  Tensor source = from_vector(values, {700'000});
  const Tensor there = source.to(Device::cuda);
  source.fill_(-1);
  CHECK(there.to_vector<float>() == values);
}

TEST_CASE("tensors on two devices") {
  const Tensor a = ones({2, 2}), b = ones({2, 2}, {.device = Device::cuda});
  CHECK_THROWS_WITH_AS(a + b, doctest::Contains("[add] all tensors must be on one device, got cpu and cuda:0"), DeviceError);
  CHECK_THROWS_AS(mm(b, a), DeviceError);
  CHECK_THROWS_AS(cross_entropy(b, zeros({2}, {.dtype = DType::i64})), DeviceError);
  CHECK_THROWS_WITH_AS(SGD({a, b}), doctest::Contains("[optimizer]"), DeviceError);
  CHECK_THROWS_AS(ones({1}, {.device = {Device::Type::cuda, 1}}), DeviceError);
}

TEST_CASE("a bad target or index is reported by the next value read, with operation, value and position") {
  const Tensor logits = ones({3, 4}, {.device = Device::cuda, .requires_grad = true});
  const auto target = [](std::vector<int64_t> v) { return from_vector(v, {int64_t(v.size())}, Device::cuda); };
  const Tensor loss = cross_entropy(logits, target({0, 7, -100}));
  CHECK_THROWS_WITH_AS(loss.item<float>(), doctest::Contains("target 7 at position 1 is outside [0, 4)"), IndexError);
  CHECK(ones({1}, {.device = Device::cuda}).item<float>() == 1);  // reported once

  const Tensor x = ones({5, 3}, {.device = Device::cuda});
  const Tensor picked = gather(x, 0, target({1, 2, 5}).reshape({1, 3}));
  CHECK_THROWS_WITH_AS(picked.to_vector<float>(), doctest::Contains("index 5 at position 2 is outside [0, 5)"), IndexError);
  CHECK(gather(x, 0, target({1, 2, 4}).reshape({1, 3})).to_vector<float>() == std::vector<float>(3, 1));
  CHECK_THROWS_AS(
      (scatter_add(x, 0, target({0, -6, 0}).reshape({1, 3}), ones({1, 3}, {.device = Device::cuda})), x.to_vector<float>()),
      IndexError);
}

TEST_CASE("with HALFSTEP_SYNC=1 the call with the bad target throws itself") {
  if (!std::getenv("HALFSTEP_SYNC")) return;  // ctest has an entry that sets it
  const Tensor logits = ones({3, 4}, {.device = Device::cuda}), x = ones({5, 3}, {.device = Device::cuda});
  const Tensor bad = from_vector<int64_t>({0, 7, 1}, {3}, Device::cuda);
  CHECK_THROWS_WITH_AS(cross_entropy(logits, bad), doctest::Contains("target 7 at position 1 is outside [0, 4)"), IndexError);
  CHECK_THROWS_WITH_AS(gather(x, 0, bad.reshape({1, 3})), doctest::Contains("index 7 at position 1 is outside [0, 5)"), IndexError);
  CHECK((logits + 1.0).sum().item<float>() == 24);
}

TEST_CASE("a good loss after a bad one") {
  const Tensor logits = zeros({1, 4}, {.device = Device::cuda});
  cross_entropy(logits, from_vector<int64_t>({9}, {1}, Device::cuda));
  CHECK_THROWS_AS(backend_for(Device::cuda).synchronize(), IndexError);
  const Tensor loss = cross_entropy(logits, from_vector<int64_t>({2}, {1}, Device::cuda));
  CHECK(loss.item<float>() == doctest::Approx(std::log(4.0)));
}

TEST_CASE("memory: counted by category, used again, and an error that says where it went") {
  Allocator& memory = allocator(Device::cuda);
  const size_t before = memory.stats().live;
  {
    const MemoryScope tag(MemoryTag::data);
    const Tensor kept = zeros({1 << 18}, {.device = Device::cuda});
    CHECK(memory.stats().live - before == size_t(1) << 20);
    CHECK(memory.stats().live_by_tag[size_t(MemoryTag::data)] >= size_t(1) << 20);
    CHECK_THROWS_WITH_AS(empty({int64_t(1) << 44}, {.device = Device::cuda}), doctest::Contains("cuda:0: cannot allocate"),
                         MemoryError);
    CHECK_THROWS_WITH(empty({int64_t(1) << 44}, {.device = Device::cuda}), doctest::Contains("data 1.0 MiB"));
    CHECK(kept.sum().item<float>() == 0);
  }
  CHECK(memory.stats().live == before);
}

TEST_CASE("what is cached is given back when another size does not fit") {
  Allocator& memory = allocator(Device::cuda);
  memory.empty_cache();
  // Two thirds of the free memory, twice, in different sizes.
  size_t largest_fit = size_t(24) << 20;
  while (largest_fit < (size_t(1) << 38)) {
    try {
      empty({int64_t(largest_fit * 2)}, {.dtype = DType::u8, .device = Device::cuda});
    } catch (const MemoryError&) { break; }
    memory.empty_cache();
    largest_fit *= 2;
  }
  CHECK_NOTHROW(empty({int64_t(largest_fit)}, {.dtype = DType::u8, .device = Device::cuda}));
  CHECK(memory.stats().reserved >= largest_fit);
  CHECK_NOTHROW(empty({int64_t(largest_fit + (size_t(3) << 20))}, {.dtype = DType::u8, .device = Device::cuda}));
  memory.empty_cache();
}
