// SPDX-License-Identifier: Apache-2.0
// The state a region sets and restores.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "tests/amp/autocast_calls.h"

using namespace halfstep;
using namespace halfstep::calls;

namespace {

constexpr Device::Type kCpu = Device::Type::cpu, kCuda = Device::Type::cuda;

struct Snapshot {
  bool cpu = autocast::is_enabled(kCpu), cuda = autocast::is_enabled(kCuda);
  DType cpu_dtype = autocast::dtype(kCpu), cuda_dtype = autocast::dtype(kCuda);
  bool cache = autocast::is_cache_enabled();
  bool operator==(const Snapshot&) const = default;
};

// Opens a region from one and the same options at every depth.
void recurse(const AutocastOptions& options, int depth) {
  const Snapshot before;
  {
    const Autocast region(Device::cpu, options);
    CHECK(enabled());
    if (depth > 0) recurse(options, depth - 1);
    CHECK(enabled());
  }
  CHECK(Snapshot() == before);
}

}  // namespace

TEST_CASE("amp 27: defaults are float16 on cuda, bfloat16 on cpu, off, cache on") {
  const Snapshot s;
  CHECK(!s.cpu);
  CHECK(!s.cuda);
  CHECK(s.cpu_dtype == DType::bf16);
  CHECK(s.cuda_dtype == DType::f16);
  CHECK(s.cache);
}

TEST_CASE("amp 28: a nested disabled region runs in float32, and lowering comes back after it") {
  const Tensor a = rand({4, 4}), b = rand({4, 4});
  const Autocast region(Device::cpu, DType::f16);
  const Tensor low = mm(a, b);
  CHECK(low.dtype() == DType::f16);
  Tensor wide;
  {
    const Autocast off(Device::cpu, {.enabled = false});
    wide = mm(a, b);
    CHECK(wide.dtype() == DType::f32);
    CHECK_THROWS_WITH_AS(mm(low, b),
                         "[mm] all inputs must have one dtype, got float16 [4, 4] and float32 [4, 4]\n"
                         "help: convert with to(dtype), or compute inside an Autocast region",
                         DTypeError);
    CHECK(mm(low.to(DType::f32), b).dtype() == DType::f32);
  }
  CHECK(mm(low, b).dtype() == DType::f16);
  CHECK(mm(wide, low).dtype() == DType::f16);
}

TEST_CASE("amp 29: the enabled flag at every point") {
  CHECK(!enabled());
  {
    const Autocast region(Device::cpu);
    CHECK(enabled());
    {
      const Autocast off(Device::cpu, {.enabled = false});
      CHECK(!enabled());
      {
        const Autocast again(Device::cpu);
        CHECK(enabled());
        const std::optional<DType> low[] = {DType::f16, std::nullopt};
        const Autocast in_float16(Device::cpu, low[0]);
        CHECK((enabled() && autocast::dtype(Device::Type::cpu) == DType::f16));
        const Autocast none(Device::cpu, low[1]);
        CHECK(!enabled());
      }
      CHECK(!enabled());
    }
    CHECK(enabled());
  }
  CHECK(!enabled());
}

TEST_CASE("amp 30: an exception that leaves a region restores everything") {
  const Snapshot before;
  try {
    const Autocast outer(Device::cpu, {.dtype = DType::f16, .cache_enabled = false});
    const Autocast inner(Device::cuda, DType::bf16);
    mm(rand({2, 3}), rand({2, 3}));
    FAIL("mm must throw");
  } catch (const ShapeError&) {}
  CHECK(Snapshot() == before);

  // And an op that fails inside leaves the region as it was.
  const Autocast region(Device::cpu);
  CHECK_THROWS_AS(mm(rand({2, 3}), rand({2, 3})), ShapeError);
  CHECK_THROWS_AS(nll_loss(rand({2, 3}), full({2}, 7, {.dtype = DType::i64})), IndexError);
  CHECK(enabled());
}

TEST_CASE("amp 31: a nested region without a dtype takes the outer one") {
  const Autocast outer(Device::cpu, DType::f16);
  {
    const Autocast off(Device::cpu, {.enabled = false});
    CHECK(low_dtype() == DType::f16);
    const Autocast inner(Device::cpu);
    CHECK(low_dtype() == DType::f16);
    CHECK(mm(rand({2, 2}), rand({2, 2})).dtype() == DType::f16);
  }
  {
    const Autocast inner(Device::cpu, DType::bf16);
    CHECK(low_dtype() == DType::bf16);
  }
  CHECK(low_dtype() == DType::f16);
}

TEST_CASE("amp 32: a region of one device leaves the other alone") {
  const Tensor a = rand({2, 2});
  const Autocast region(Device::cuda, DType::f16);
  CHECK(autocast::is_enabled(kCuda));
  CHECK(!autocast::is_enabled(kCpu));
  CHECK(mm(a, a).dtype() == DType::f32);
  CHECK(sum(a.to(DType::f16)).dtype() == DType::f16);
}

TEST_CASE("amp 33: regions of two devices nest, and leaving the inner one keeps the outer's weight copies") {
  const Tensor x = rand({2, 4}), w = leaf({3, 4});
  const Autocast cpu(Device::cpu);
  linear(x, w);
  {
    const Autocast cuda(Device::cuda, DType::f16);
    CHECK(autocast::is_enabled(kCpu));
    CHECK(autocast::is_enabled(kCuda));
    CHECK(autocast::dtype(kCpu) == DType::bf16);
    CHECK(linear(x, w).dtype() == DType::bf16);
  }
  CHECK(autocast::is_enabled(kCpu));
  CHECK(!autocast::is_enabled(kCuda));
  const uint64_t casts = autocast::cast_count();
  linear(x, w);
  CHECK(autocast::cast_count() - casts == 1);  // x alone
}

TEST_CASE("amp 34: a thread started inside a region begins with the defaults") {
  const Autocast region(Device::cpu, {.dtype = DType::f16, .cache_enabled = false});
  Snapshot there;
  DType result = DType::i64;
  std::thread([&] {
    there = Snapshot();
    const Tensor a = rand({2, 2});
    result = mm(a, a).dtype();
    const Autocast own(Device::cpu, {.cache_enabled = true});  // must not be seen by the first thread
  }).join();
  CHECK(!there.cpu);
  CHECK(there.cpu_dtype == DType::bf16);
  CHECK(there.cache);
  CHECK(result == DType::f32);
  CHECK(low_dtype() == DType::f16);
  CHECK(!autocast::is_cache_enabled());
}

TEST_CASE("amp 35: the device is a type, and unknown names are refused where text is read") {
  CHECK(!std::is_constructible_v<Autocast, const char*>);
  CHECK_THROWS_AS(parse_device("quantum"), DeviceError);
}

TEST_CASE("amp 38: the same region options may be entered again while they are open") {
  const AutocastOptions options{.dtype = DType::f16};
  recurse(options, 3);
  CHECK(!enabled());
}

TEST_CASE("amp 39: running the same region twice gives equal outputs") {
  manual_seed(9);
  const Tensor x = rand({4, 8}), w = leaf({8, 8});
  auto run = [&] {
    const Autocast region(Device::cpu);
    return softmax(linear(relu(linear(x, w)), w), 1);
  };
  CHECK(bitwise(run(), run()));
}

TEST_CASE("Off switches every device off and restores them") {
  const Autocast cpu(Device::cpu), cuda(Device::cuda);
  {
    const autocast::Off off;
    CHECK(!autocast::is_enabled(kCpu));
    CHECK(!autocast::is_enabled(kCuda));
  }
  CHECK(autocast::is_enabled(kCpu));
  CHECK(autocast::is_enabled(kCuda));
}

namespace {

template <class T>
constexpr bool is_local = !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> && !requires {
  T::operator new(size_t());
};
static_assert(is_local<Autocast> && is_local<autocast::Off> && is_local<autocast::AsIn> && is_local<autocast::ModuleRegion>);

// The state of a thread: "bf16 off" for cpu and cuda, and "cached" if casts are.
std::string state_now() {
  std::string out;
  for (const Device::Type type : {Device::Type::cpu, Device::Type::cuda}) {
    const auto& region = autocast::regions().by_device[size_t(type)];
    out += region.mode == autocast::Mode::on ? (region.dtype == DType::f16 ? "f16 " : "bf16 ") : "off ";
  }
  return out + (autocast::is_cache_enabled() ? "cached" : "");
}

}  // namespace

TEST_CASE("regions that end in another order than the reverse leave the state of what is left") {
  std::optional<Autocast> outer(std::in_place, Device::cpu, DType::bf16);
  std::optional<Autocast> other(std::in_place, Device::cuda, AutocastOptions{.dtype = DType::f16, .cache_enabled = false});
  std::optional<Autocast> inner(std::in_place, Device::cpu, DType::f16);
  CHECK(state_now() == "f16 f16 ");
  outer.reset();
  CHECK(state_now() == "f16 f16 ");
  other.reset();  // of another device, so that it ends at once; the cache is as before it when the inner one ends
  CHECK(state_now() == "f16 off ");
  inner.reset();
  CHECK(state_now() == "off off cached");
  outer.emplace(Device::cpu, DType::bf16);
  other.emplace(Device::cuda, DType::f16);
  outer.reset();
  CHECK(state_now() == "off f16 cached");
  other.reset();
  CHECK(state_now() == "off off cached");
}

TEST_CASE("a region that ends within a guard of the library's own is not put back by it, and one begun there outlives it") {
  const std::string plain = "off off cached";
  const autocast::Regions none = autocast::regions();
  const std::string module = "net";
  enum { off, as_in, in_float32, in_float16 };
  for (const int kind : {off, as_in, in_float32, in_float16}) {
    CAPTURE(kind);
    std::optional<autocast::Off> quiet;
    std::optional<autocast::AsIn> then;
    std::optional<autocast::ModuleRegion> of_module;
    const auto begin = [&] {
      if (kind == off) quiet.emplace();
      if (kind == as_in) then.emplace(none);
      if (kind >= in_float32) of_module.emplace(kind == in_float32 ? DType::f32 : DType::f16, &module);
    };
    const auto end = [&] { quiet.reset(), then.reset(), of_module.reset(); };
    std::optional<Autocast> region(std::in_place, Device::cpu, AutocastOptions{.dtype = DType::bf16, .cache_enabled = false});
    begin();
    const std::string inside = state_now();
    region.reset();
    CHECK(state_now().substr(0, 8) == inside.substr(0, 8));  // the cache may be as before
    end();
    CHECK(state_now() == plain);
    CHECK(autocast::regions().by_device[0].dtype == none.by_device[0].dtype);

    const Autocast outer(Device::cpu, DType::bf16);
    begin();
    region.emplace(Device::cpu, DType::f16);
    end();
    CHECK(state_now() == "f16 off cached");
    region.reset();
    CHECK(state_now() == "bf16 off cached");
  }
  CHECK(state_now() == plain);
}
