// SPDX-License-Identifier: Apache-2.0
// Numbers that a tensor's dtype, or a draw, does not have: refused and taken as by PyTorch 2.15.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "framework/ops/index/slicing.h"
#include "framework/ops/ops.h"
#include "framework/ops/shape/create.h"
#include "framework/ops/window/padding.h"

using namespace halfstep;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

Tensor of(DType dtype) { return ones({2}, {.dtype = dtype}); }
Tensor first() { return tensor({true, false}); }
std::vector<int64_t> ints(const Tensor& t) { return t.to_vector<int64_t>(); }

struct Refused {
  std::string op;  // what the error names
  std::function<void()> call;
};
void check_refused(const std::vector<Refused>& calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    CAPTURE(i);
    CAPTURE(calls[i].op);
    CHECK_THROWS_WITH_AS(calls[i].call(), doctest::Contains(("[" + calls[i].op + "]").c_str()), ValueError);
  }
}

}  // namespace

TEST_CASE("numbers that do not fit are not written") {
  const Tensor zero = tensor({0}), mask = first();
  check_refused({
      {"fill_", [] { of(DType::i16).fill_(40000); }},
      {"fill_", [] { of(DType::f16).fill_(-70000.0); }},
      {"fill_", [] { of(DType::i32).new_full({3}, kNan); }},
      {"full", [] { full({2}, -200, {.dtype = DType::i8}); }},
      {"full", [] { full({2}, 1e39); }},
      {"full", [] { scalar(uint64_t(1) << 63, {.dtype = DType::i64}); }},
      {"full_like", [] { full_like(of(DType::u8), -1.0); }},
      {"tensor",
       [] {
         tensor({1, 256}, {.dtype = DType::u8});
       }},
      {"tensor",
       [] {
         tensor({0.5, kInf}, {.dtype = DType::i64});
       }},
      {"tensor", [] { tensor({std::numeric_limits<uint64_t>::max()}); }},
      {"tensor",
       [] {
         tensor(std::vector<double>{1, 1e10}, {2}, {.dtype = DType::i32});
       }},
      {"tensor", [] { of(DType::i8).new_tensor({130}); }},
      {"masked_fill", [&] { of(DType::f16).masked_fill(mask, -1e9); }},
      {"masked_fill_", [&] { of(DType::i64).masked_fill_(mask, 1e19); }},
      {"index_fill", [&] { of(DType::bf16).index_fill(0, zero, 1e39); }},
      {"index_fill", [&] { of(DType::u8).index_fill_(0, zero, 300); }},
      {"scatter", [&] { of(DType::i16).scatter(0, zero, 70000); }},
      {"scatter", [&] { of(DType::f16).scatter_(0, zero, 1e5); }},
      {"index_put_", [&] { of(DType::u8).index_put_({mask}, 1000); }},
      {"operator=", [] { of(DType::i32).index({0}) = int64_t(1) << 40; }},
      {"where", [&] { where(mask, of(DType::u8), 300); }},
      {"where", [&] { where(mask, -1e39, of(DType::f32)); }},
      {"pad",
       [] {
         pad(of(DType::i8), {1, 0}, "constant", 200);
       }},
      {"threshold", [] { threshold(of(DType::f16), 3, 1e9); }},
      {"linspace", [] { linspace(0, 300, 4, {.dtype = DType::u8}); }},
      {"linspace", [] { linspace(0, 1e6, 4, {.dtype = DType::f16}); }},
      {"clamp", [] { clamp(of(DType::u8), 300, {}); }},
      {"clamp", [] { of(DType::u8).clamp_({}, -1); }},
      {"clamp", [] { clamp_max(of(DType::i8), -200); }},
      {"clamp", [] { clamp_min(of(DType::f16), 1e9); }},
  });
}

TEST_CASE("numbers that PyTorch converts are converted") {
  const Tensor mask = first();
  CHECK(ints(of(DType::u8).fill_(-1)) == std::vector<int64_t>{255, 255});
  CHECK(ints(of(DType::i32).fill_(1.9)) == std::vector<int64_t>{1, 1});
  CHECK(ints(full({1}, 255.7, {.dtype = DType::u8})) == std::vector<int64_t>{255});
  CHECK(ints(of(DType::u8).masked_fill(mask, -255)) == std::vector<int64_t>{1, 1});
  CHECK(ints(tensor({-1}, {.dtype = DType::u8})) == std::vector<int64_t>{255});
  CHECK(std::isinf(tensor({1e9}, {.dtype = DType::f16}).item<double>()));
  CHECK(std::isinf(of(DType::f16).masked_fill(mask, -kInf).index({0}).item<double>()));
  CHECK(where(mask, of(DType::f16), -1e9).to_vector<double>() == std::vector<double>{1, -kInf});
  CHECK(where(mask, of(DType::u8), 2.5).to_vector<double>() == std::vector<double>{1, 2.5});
  CHECK(ints(of(DType::u8) + 300) == std::vector<int64_t>{45, 45});
  CHECK(ints(tensor({300, -1}).to(DType::u8)) == std::vector<int64_t>{44, 255});
  CHECK(ints(clamp(of(DType::u8), -1, 300)) == std::vector<int64_t>{1, 1});
  CHECK(ints(clamp(of(DType::i32), int64_t(-1) << 40, int64_t(1) << 41)) == std::vector<int64_t>{1, 1});
  CHECK(clamp(of(DType::u8), {}, -1.5).to_vector<double>() == std::vector<double>{-1.5, -1.5});
  CHECK(std::isinf(nan_to_num(tensor({kNan}, {.dtype = DType::f16}), 1e9).item<double>()));
  CHECK(tensor({std::numeric_limits<uint64_t>::max()}, {.dtype = DType::f64}).item<double>() == 0x1p64);
}

TEST_CASE("draws of numbers that a dtype does not have, or from no range") {
  const auto shape = Shape{3};
  check_refused({
      {"randint", [&] { randint(0, 257, shape, {.dtype = DType::u8}); }},
      {"randint", [&] { randint(-1, 5, shape, {.dtype = DType::u8}); }},
      {"randint", [&] { randint(0, 3, shape, {.dtype = DType::boolean}); }},
      {"randint", [&] { randint(int64_t(1) << 40, shape, {.dtype = DType::i32}); }},
      {"randint", [&] { randint(70000, shape, {.dtype = DType::f16}); }},
      {"randint", [&] { randint(4, 4, Shape{0}); }},
      {"uniform_", [] { of(DType::f32).uniform_(2, 1); }},
      {"uniform_", [] { of(DType::f64).uniform_(0, kNan); }},
      {"uniform_", [] { of(DType::f32).uniform_(-kInf, 0); }},
      {"uniform_", [] { of(DType::f16).uniform_(0, 1e6); }},
      {"uniform_", [] { of(DType::f32).uniform_(-3e38, 3e38); }},
      {"normal_", [] { of(DType::f32).normal_(0, -0.5); }},
      {"normal_", [] { of(DType::f32).normal_(0, kNan); }},
  });
  CHECK_THROWS_AS(of(DType::i32).uniform_(0, 1), DTypeError);
  CHECK_THROWS_AS(of(DType::u8).normal_(0, 1), DTypeError);
  CHECK(of(DType::f32).uniform_(5, 5).to_vector<double>() == std::vector<double>{5, 5});
  CHECK(std::isnan(of(DType::f32).normal_(kNan, 1).sum().item<double>()));
  for (const int64_t v : ints(randint(250, 256, {100}, {.dtype = DType::u8}))) CHECK(v >= 250);
  CHECK(randint(0, 2, {64}, {.dtype = DType::boolean}).dtype() == DType::boolean);
}

TEST_CASE("numbers are not read as others, and dimensions do not wrap") {
  CHECK_THROWS_WITH_AS(tensor(3e9).item<int>(), doctest::Contains("[item] the number does not fit int32"), ValueError);
  CHECK_THROWS_AS(tensor({int64_t(1) << 40}).item<int>(), ValueError);
  CHECK_THROWS_AS(tensor(kNan).item<int64_t>(), ValueError);
  CHECK_THROWS_AS(tensor(-1.0).item<uint8_t>(), ValueError);
  CHECK_THROWS_AS(tensor({1e39}, {.dtype = DType::f64}).item<float>(), ValueError);
  CHECK(std::isinf(tensor({kInf}, {.dtype = DType::f64}).item<float>()));
  CHECK(tensor(-3.7).item<int>() == -3);
  CHECK_THROWS_WITH_AS(tensor({1, 70000}).to_vector<uint16_t>(), doctest::Contains("[to_vector] the number does not fit uint16"),
                       ValueError);
  CHECK_THROWS_AS(tensor({0.5, kInf}).to_vector<int>(), ValueError);
  CHECK(tensor({1.5, -2.5}).to_vector<int8_t>() == std::vector<int8_t>{1, -2});
  const Tensor x = zeros({2, 3});
  constexpr int64_t kFar = int64_t(1) << 32;
  CHECK_THROWS_AS(x.stride(kFar), IndexError);
  CHECK_THROWS_AS(x.size(kFar + 1), IndexError);
  CHECK_THROWS_AS(x.shape()[-kFar], IndexError);
  CHECK(x.stride(-2) == 3);
}
