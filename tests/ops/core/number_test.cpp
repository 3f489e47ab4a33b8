// SPDX-License-Identifier: Apache-2.0
// Numbers in calls are integers, floating numbers or bools, as C++ has them. The dtypes are those of PyTorch 2.15.
#include "framework/base/number.h"

#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/ops/core/registry.h"
#include "halfstep.h"
#include "tests/support/errors.h"

using namespace halfstep;
using halfstep::testing::error_of;

namespace {

constexpr int64_t kBig = (int64_t(1) << 53) + 1, kMost = std::numeric_limits<int64_t>::max(),
                  kLeast = std::numeric_limits<int64_t>::min();
constexpr DType kDTypes[] = {DType::i64, DType::i32, DType::u8, DType::f32, DType::f16, DType::f64};

// What ops of a tensor of this dtype and a number give.
void check_results(DType dtype, Number n, DType wanted) {
  CAPTURE(dtype);
  CAPTURE(n.dtype());
  const Tensor x = ones({3}, {.dtype = dtype});
  const Tensor mask = x > 0;
  for (const Tensor& y : {x * n, n + x, x - n, fmod(x, n), x % n, pow(x, n), pow(n, x), floor_divide(x, n), maximum(x, n),
                          x.clamp(n, n), clamp_min(x, n), clamp(x, {}, n), where(mask, x, n), where(mask, n, x)})
    CHECK(y.dtype() == wanted);
  CHECK((x / n).dtype() == (is_floating(wanted) ? wanted : DType::f32));
  CHECK((n / x).dtype() == (is_floating(wanted) ? wanted : DType::f32));
  CHECK((x == n).dtype() == DType::boolean);
  for (const Tensor& y : {x.masked_fill(mask, n), index_fill(x, 0, arange(1), n), x.new_full({2}, n), full_like(x, n)})
    CHECK(y.dtype() == dtype);
  if (wanted == dtype) CHECK(x.clone().add_(n).dtype() == dtype);
}

}  // namespace

TEST_CASE("a number with a point makes integers float, and others keep a tensor's dtype") {
  for (const DType dtype : kDTypes) {
    const bool floating = is_floating(dtype);
    check_results(dtype, 2, dtype);
    check_results(dtype, int8_t(2), dtype);
    check_results(dtype, 2.0, floating ? dtype : DType::f32);
    check_results(dtype, 2.5f, floating ? dtype : DType::f32);
  }
  const Tensor mask = tensor({true, false});
  CHECK((mask + true).dtype() == DType::boolean);
  CHECK((mask * true).to_vector<int>() == std::vector<int>{1, 0});
  CHECK((mask * 2).dtype() == DType::i64);
  CHECK((mask * 2.0).dtype() == DType::f32);
  CHECK((tensor({2, 3}) + true).to_vector<int>() == std::vector<int>{3, 4});
  CHECK((arange(3) * f16(2)).dtype() == DType::f32);
  CHECK(full({1}, f16(2)).dtype() == DType::f32);
  CHECK(full({1}, uint8_t(2)).dtype() == DType::i64);
  CHECK(error_of([] { arange(3).mul_(2.0); }) == "[mul] in place, a result of float32 cannot be stored in int64");
  CHECK(arange(3).add_(2).to_vector<int>() == std::vector<int>{2, 3, 4});
}

TEST_CASE("arange has the dtype of its numbers") {
  CHECK(arange(3).dtype() == DType::i64);
  CHECK(arange(int64_t(2), 5).dtype() == DType::i64);
  CHECK(arange(0, 6, 2, {.device = Device::cpu}).dtype() == DType::i64);
  CHECK(arange(3.0).dtype() == DType::f32);
  CHECK(arange(0, 2.5).dtype() == DType::f32);
  CHECK(arange(0, 1, 0.25).dtype() == DType::f32);
  CHECK(arange(0, 1, 0.25).to_vector<double>() == std::vector<double>{0, 0.25, 0.5, 0.75});
  CHECK(arange(0, 1, 0.5f, {.requires_grad = true}).requires_grad());
  CHECK(arange(0, 4, 1.5, {.dtype = DType::i32}).to_vector<double>() == std::vector<double>{0, 1, 2});
  CHECK(invoke("arange", {}, nlohmann::json{{"start", 0}, {"end", 1}, {"step", 0.25}})[0].dtype() == DType::f32);
  CHECK(invoke("arange", {}, nlohmann::json{{"end", 4}})[0].dtype() == DType::i64);
}

TEST_CASE("whole numbers keep 64 bits") {
  const auto value = [](const Tensor& t) { return t.item<int64_t>(); };
  const Tensor zero = zeros({1}, {.dtype = DType::i64});
  CHECK(value(zero.clone().fill_(kMost)) == kMost);
  CHECK(value(zero.clone().fill_(kLeast)) == kLeast);
  CHECK(value(zero + kBig) == kBig);
  CHECK(value(kBig - zero) == kBig);
  CHECK(value(zero.clone().add_(kBig)) == kBig);
  CHECK(value(maximum(zero, kBig)) == kBig);
  CHECK(value(zero.clamp(kBig, kMost)) == kBig);
  CHECK(value(where(tensor({true}), kBig, zero)) == kBig);
  CHECK(value(zero.masked_fill(tensor({true}), kBig)) == kBig);
  CHECK(value(zero.clone().masked_fill_(tensor({true}), -kBig)) == -kBig);
  CHECK(value(index_fill(zero, 0, arange(1), kBig)) == kBig);
  CHECK(value(zero.scatter(0, zero, kBig)) == kBig);
  CHECK(value(full_like(zero, kBig)) == kBig);
  CHECK(value(zero.new_full({1}, kMost)) == kMost);
  CHECK(value(scalar(kMost, {.dtype = DType::i64})) == kMost);
  CHECK(value(full({1}, kMost)) == kMost);
  CHECK((full({1}, kBig) == kBig).item<bool>());
  CHECK_FALSE((full({1}, kBig) == kBig - 1).item<bool>());
  CHECK((full({1}, kBig) > kBig - 1).item<bool>());
  Tensor x = zeros({2}, {.dtype = DType::i64});
  x[1] = kBig;
  CHECK(x.to_vector<int64_t>() == std::vector<int64_t>{0, kBig});
  x.index_put_({0}, kMost);
  CHECK(x.to_vector<int64_t>() == std::vector<int64_t>{kMost, kBig});
  CHECK(arange(kBig, kBig + 3).to_vector<int64_t>() == std::vector<int64_t>{kBig, kBig + 1, kBig + 2});
  CHECK(arange(kMost, kLeast, kLeast).to_vector<int64_t>() == std::vector<int64_t>{kMost, -1});
  CHECK(value(invoke("fmax", {{.one = zero}}, nlohmann::json{{"other", kBig}})[0]) == kBig);
  // Of other dtypes they are what a conversion makes of them.
  CHECK(zeros({1}).fill_(kMost).item<double>() == 0x1p63);
  CHECK(zeros({1}, {.dtype = DType::f64}).add(kBig).item<double>() == 0x1p53);
}

TEST_CASE("what the numbers of an interface have as double stays whole beside integers") {
  const Tensor a = tensor({1, 2}), b = tensor({3, 4}), m = tensor({{1, 2}, {3, 4}});
  CHECK(add(a, b, 2).dtype() == DType::i64);
  CHECK(addcmul(a, a, b, 3).to_vector<int>() == std::vector<int>{10, 26});
  CHECK(addmm(m, m, m, 2, 3).dtype() == DType::i64);
  CHECK(index_add(a, 0, arange(2), b, 2).to_vector<int>() == std::vector<int>{7, 10});
  CHECK(hardtanh(tensor({-5, 0, 5}), -1, 2).dtype() == DType::i64);
  CHECK(threshold(tensor({-5, 0, 5}), 0, 7).to_vector<int>() == std::vector<int>{7, 7, 5});
}

TEST_CASE("numbers of int64 keep their low bits in paddings, thresholds and comparisons") {
  const int64_t big = (int64_t(1) << 53) + 1;
  CHECK(pad(tensor({1}), {1, 0}, "constant", big)[0].item<int64_t>() == big);
  CHECK(threshold(tensor({1}), 3, big).item<int64_t>() == big);
  CHECK(threshold(tensor({big}), big - 1, 0).item<int64_t>() == big);
  CHECK(!allclose(tensor({big}), tensor({big - 1}), 0, 0));
  CHECK(!allclose(tensor({big}), tensor({big - 2}), 0, 1));
  CHECK(allclose(tensor({big}), tensor({big - 2}), 0, 2));
  CHECK(!allclose(tensor({INT64_MAX}), tensor({INT64_MIN}), 0, 1));
}

TEST_CASE("a tolerance counts in the dtype of the tensors") {
  CHECK(allclose(tensor({0.1}), tensor({0.0}), 0, 0.1));
  CHECK(allclose(tensor({0.7}, {.dtype = DType::f16}), tensor({0.0}, {.dtype = DType::f16}), 0, 0.7));
  CHECK(allclose(tensor({0.3}), tensor({1.0}), 0.7, 0));
  CHECK(!allclose(tensor({0.1001}), tensor({0.0}), 0, 0.1));
}
