// SPDX-License-Identifier: Apache-2.0
#include "framework/base/dtype.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <sstream>

using namespace halfstep;

namespace {

bool is_nan_bits(uint16_t bits, uint16_t exponent_mask) {
  return (bits & exponent_mask) == exponent_mask && (bits & ~exponent_mask & 0x7fff) != 0;
}

// Every pattern: widening keeps the value, rounding it back gives the pattern; between neighbours the nearer one, ties to even.
template <class T>
void check_patterns(uint16_t exponent_mask, double (*value)(uint16_t)) {
  int bad = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t bits = uint16_t(i);
    const float f = T::widen(bits);
    if (is_nan_bits(bits, exponent_mask)) {
      const uint16_t back = T::round(f);
      bad += !std::isnan(f) || !is_nan_bits(back, exponent_mask) || (back & 0x8000) != (bits & 0x8000);
      continue;
    }
    bad += double(f) != value(bits) || std::signbit(f) != ((bits & 0x8000) != 0);
    bad += T::round(f) != bits;
    const uint16_t next = uint16_t(bits + 1);
    if ((bits & exponent_mask) == exponent_mask || is_nan_bits(next, exponent_mask)) continue;
    // The neighbour of the largest finite number is where the next power of two would be.
    const bool last = (next & 0x7fff) == exponent_mask;
    const double step = last ? value(bits) - value(uint16_t(bits - 1)) : value(next) - value(bits);
    const float middle = float(double(f) + step / 2);
    const uint16_t even = (bits & 1) ? next : bits;
    bad += T::round(middle) != even;
    const float away = std::signbit(f) ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
    bad += T::round(std::nextafter(middle, away)) != next;
    bad += T::round(std::nextafter(middle, f)) != bits;
  }
  CHECK(bad == 0);
}

double f16_value(uint16_t b) {
  const int e = (b >> 10) & 31, m = b & 1023;
  const double v = e == 31 ? std::numeric_limits<double>::infinity() : e == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, e - 25);
  return b & 0x8000 ? -v : v;
}
double bf16_value(uint16_t b) {
  const int e = (b >> 7) & 255, m = b & 127;
  const double v = e == 255 ? std::numeric_limits<double>::infinity() : e == 0 ? std::ldexp(m, -133) : std::ldexp(128 + m, e - 134);
  return b & 0x8000 ? -v : v;
}

}  // namespace

TEST_CASE("f16: all 65536 patterns") { check_patterns<f16>(0x7c00, f16_value); }
TEST_CASE("bf16: all 65536 patterns") { check_patterns<bf16>(0x7f80, bf16_value); }

TEST_CASE("the edges of f16") {
  CHECK(f16(65504.0f).bits == 0x7bff);
  CHECK(f16(65519.996f).bits == 0x7bff);
  CHECK(f16(65520.0f).bits == 0x7c00);
  CHECK(f16(-65520.0f).bits == 0xfc00);
  CHECK(f16(0x1p-24f).bits == 1);
  CHECK(f16(0x1p-25f).bits == 0);
  CHECK(f16(std::nextafter(0x1p-25f, 1.0f)).bits == 1);
  CHECK(f16(-0.0f).bits == 0x8000);
  CHECK(f16(1e-45f).bits == 0);
  static_assert(f16(1.0f).bits == 0x3c00 && float(f16(0.1f)) == 0.0999755859375f);
}

TEST_CASE("the edges of bf16") {
  CHECK(bf16(3.4028235e38f).bits == 0x7f80);
  CHECK(bf16(0x1.fep127f).bits == 0x7f7f);
  CHECK(bf16(1e-45f).bits == 0);
  CHECK(std::isnan(float(bf16(std::bit_cast<float>(0x7f800001u)))));  // a NaN whose upper half alone reads inf
  static_assert(bf16(1.0f).bits == 0x3f80);
}

TEST_CASE("the standard library's limits of the 16-bit floats") {
  using Half = std::numeric_limits<f16>;
  using Brain = std::numeric_limits<bf16>;
  static_assert(Half::max() == 65504.0f && Half::lowest() == -65504.0f && Half::epsilon() == 0x1p-10f);
  static_assert(Half::min() == 0x1p-14f && Half::denorm_min() == 0x1p-24f && Half::round_error() == 0.5f);
  static_assert(Brain::max() == 0x1.fep127f && Brain::lowest() == -0x1.fep127f && Brain::epsilon() == 0x1p-7f);
  static_assert(Brain::min() == 0x1p-126f && Brain::denorm_min() == 0x1p-133f && Brain::round_error() == 0.5f);
  static_assert(Half::is_specialized && Brain::digits == 8 && Half::digits == 11);
  CHECK(std::isinf(float(Half::infinity())));
  CHECK(std::isinf(float(Brain::infinity())));
  CHECK(std::isnan(float(Half::quiet_NaN())));
  CHECK(std::isnan(float(Brain::quiet_NaN())));
  CHECK(double(Half::max()) == max_value(DType::f16));
  CHECK(double(Brain::epsilon()) == epsilon(DType::bf16));
}

TEST_CASE("sizes, names and kinds") {
  const size_t sizes[] = {2, 2, 4, 8, 1, 1, 2, 4, 8, 1};
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType t = DType(i);
    CHECK(size_of(t) == sizes[i]);
    CHECK(parse_dtype(name(t)) == t);
    CHECK(dispatch(t, [](auto tag) { return dtype_of<decltype(tag)>; }) == t);
    CHECK(dispatch(t, [](auto tag) { return sizeof(tag); }) == size_of(t));
    CHECK(int(is_floating(t)) + int(is_integral(t)) + int(t == DType::boolean) == 1);
  }
  CHECK(parse_dtype("half") == DType::f16);
  CHECK(parse_dtype("bf16") == DType::bf16);
  CHECK(parse_dtype("long") == DType::i64);
  CHECK_FALSE(parse_dtype("complex64").has_value());
  CHECK_FALSE(parse_dtype("").has_value());
  std::ostringstream out;
  out << DType::bf16;
  CHECK(out.str() == "bfloat16");
}

TEST_CASE("promotion is symmetric, associative where it can be, and PyTorch's") {
  for (int i = 0; i < kDTypeCount; ++i) {
    for (int j = 0; j < kDTypeCount; ++j) CHECK(promote(DType(i), DType(j)) == promote(DType(j), DType(i)));
    CHECK(promote(DType(i), DType(i)) == DType(i));
    CHECK(promote(DType(i), DType::boolean) == DType(i));
  }
  CHECK(promote(DType::f16, DType::bf16) == DType::f32);
  CHECK(promote(DType::f16, DType::f32) == DType::f32);
  CHECK(promote(DType::f32, DType::f64) == DType::f64);
  CHECK(promote(DType::i64, DType::f16) == DType::f16);
  CHECK(promote(DType::u8, DType::i8) == DType::i16);
  CHECK(promote(DType::u8, DType::i16) == DType::i16);
  CHECK(promote(DType::u8, DType::i64) == DType::i64);
  CHECK(promote(DType::i8, DType::i32) == DType::i32);
}

TEST_CASE("limits") {
  CHECK(max_value(DType::f16) == double(f16::widen(0x7bff)));
  CHECK(max_value(DType::bf16) == double(bf16::widen(0x7f7f)));
  CHECK(max_value(DType::f32) == double(std::numeric_limits<float>::max()));
  CHECK(max_value(DType::f64) == std::numeric_limits<double>::max());
  CHECK(epsilon(DType::f16) == double(f16::widen(0x3c01)) - 1);
  CHECK(epsilon(DType::bf16) == double(bf16::widen(0x3f81)) - 1);
  CHECK(epsilon(DType::f32) == double(std::numeric_limits<float>::epsilon()));
  CHECK(epsilon(DType::f64) == std::numeric_limits<double>::epsilon());
}
