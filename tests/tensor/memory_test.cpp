// SPDX-License-Identifier: Apache-2.0
// The statistics of the allocator as tensors come and go. The allocator itself: host_allocator_test.cpp.
#include "framework/tensor/memory.h"

#include <doctest/doctest.h>

#include <numeric>
#include <thread>

#include "framework/ops/ops.h"

using namespace halfstep;

namespace {

MemoryStats stats() { return allocator(Device::cpu).stats(); }
size_t live(MemoryTag tag) { return stats().live_by_tag[size_t(tag)]; }
constexpr size_t kBytes = 64 * 64 * 4;

}  // namespace

TEST_CASE("a tensor's memory lives as long as a handle or view of it") {
  const size_t before = stats().live;
  Tensor t = zeros({64, 64});
  CHECK(stats().live - before == kBytes);
  Tensor v = t[3];
  t = Tensor();
  CHECK(stats().live - before == kBytes);
  v = Tensor();
  CHECK(stats().live == before);
}

TEST_CASE("views, detach and expand take no memory; clones and casts do") {
  const Tensor t = zeros({64, 64});
  const size_t before = stats().live;
  const Tensor a = t.t(), b = t.detach(), c = t.unsqueeze(0).expand({100, 64, 64}), d = t.reshape({-1}), e = t.to(DType::f32);
  CHECK(stats().live == before);
  const Tensor f = t.to(DType::f16);
  CHECK(stats().live - before == kBytes / 2);
  const Tensor g = t.clone();
  CHECK(stats().live - before == kBytes / 2 + kBytes);
}

TEST_CASE("empty tensors and wrapped memory are not counted") {
  const size_t before = stats().live;
  const Tensor none = zeros({0, 5});
  std::vector<float> own(100);
  const Tensor blob = Tensor::from_blob(own.data(), {100}, DType::f32, nullptr);
  CHECK(stats().live == before);
}

TEST_CASE("scopes name what memory is for, inner ones first") {
  const size_t parameters = live(MemoryTag::parameters), data = live(MemoryTag::data);
  CHECK(MemoryScope::current() == MemoryTag::activations);
  Tensor p, d;
  {
    const MemoryScope outer(MemoryTag::parameters);
    p = zeros({64, 64});
    {
      const MemoryScope inner(MemoryTag::data);
      d = zeros({64, 64});
      std::thread([] { CHECK(MemoryScope::current() == MemoryTag::activations); }).join();
    }
    CHECK(MemoryScope::current() == MemoryTag::parameters);
  }
  CHECK(MemoryScope::current() == MemoryTag::activations);
  CHECK(live(MemoryTag::parameters) - parameters == kBytes);
  CHECK(live(MemoryTag::data) - data == kBytes);
}

TEST_CASE("the peak is the highest live count, and its columns sum to it") {
  allocator(Device::cpu).reset_peak();
  const size_t before = stats().live;
  CHECK(stats().peak == before);
  { const Tensor a = zeros({64, 64}), b = zeros({64, 64}); }
  const Tensor c = zeros({64, 64});
  const MemoryStats s = stats();
  CHECK(s.peak - before == 2 * kBytes);
  CHECK(s.live - before == kBytes);
  CHECK(std::accumulate(s.peak_by_tag.begin(), s.peak_by_tag.end(), size_t(0)) == s.peak);
  CHECK(std::accumulate(s.live_by_tag.begin(), s.live_by_tag.end(), size_t(0)) == s.live);
}

TEST_CASE("gradients are booked as gradients, and everything goes back after a step") {
  const Tensor w = zeros({64, 64}, {.requires_grad = true});
  auto step = [&] { sum(relu(w * 2.0) * w).backward(); };
  step();
  w.zero_grad();
  const size_t before = stats().live, gradients = live(MemoryTag::gradients);
  step();
  CHECK(stats().live - before == kBytes);
  CHECK(live(MemoryTag::gradients) - gradients == kBytes);
  w.zero_grad();
  CHECK(stats().live == before);
}

TEST_CASE("tags have names") {
  CHECK(std::string(name(MemoryTag::shadows)) == "shadows");
  CHECK(std::string(name(MemoryTag::workspace)) == "workspace");
}
