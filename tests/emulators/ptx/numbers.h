// SPDX-License-Identifier: Apache-2.0
// PTX arithmetic on the host's.
#pragma once

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace halfstep::ptx {

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

enum class Round : uint8_t { nearest, zero, down, up };

inline float canonical(float x) { return x != x ? std::bit_cast<float>(0x7fffffffu) : x; }
inline double canonical(double x) { return x; }
inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
inline double flushed(double x) { return x; }

class Rounding {
 public:
  explicit Rounding(Round r) {
    static constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    if (r != Round::nearest) std::fesetround(modes[int(r)]);
  }
  ~Rounding() { std::fesetround(FE_TONEAREST); }
};

// Rounds x to `keep` bits of precision and exponents from `least`, as a double; the caller handles overflow.
inline double rounded_to(double x, int keep, int least, Round round) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), least);
  const double unit = std::ldexp(1.0, exponent - (keep - 1));
  const double scaled = x / unit;  // exact: unit is a power of two
  double whole = 0;
  switch (round) {
    case Round::nearest: whole = std::nearbyint(scaled); break;
    case Round::zero: whole = std::trunc(scaled); break;
    case Round::down: whole = std::floor(scaled); break;
    case Round::up: whole = std::ceil(scaled); break;
  }
  return whole == 0 ? std::copysign(0.0, x) : whole * unit;
}
inline bool overflows_to_infinity(double x, Round r) {
  return r == Round::nearest || (r == Round::up && x > 0) || (r == Round::down && x < 0);
}

inline float to_float(f16 h) {
  const uint32_t sign = uint32_t(h.bits & 0x8000) << 16, exponent = h.bits >> 10 & 31, mantissa = h.bits & 0x3ff;
  if (exponent == 31) return mantissa ? std::bit_cast<float>(0x7fffffffu) : std::bit_cast<float>(sign | 0x7f800000u);
  const float magnitude = std::ldexp(float(exponent ? mantissa | 0x400 : mantissa), int(exponent ? exponent : 1) - 25);
  return sign ? -magnitude : magnitude;
}
inline float to_float(bf16 h) {
  const uint32_t bits = uint32_t(h.bits) << 16;
  return canonical(std::bit_cast<float>(bits));
}
inline f16 to_f16(double x, Round round = Round::nearest) {
  if (x != x) return {0x7fff};
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double r = std::fabs(rounded_to(x, 11, -14, round));
  if (r > 65504) return {uint16_t(sign | (std::isinf(x) || overflows_to_infinity(x, round) ? 0x7c00 : 0x7bff))};
  if (r < std::ldexp(1.0, -14)) return {uint16_t(sign | uint16_t(std::ldexp(r, 24)))};
  const int exponent = std::ilogb(r);
  return {uint16_t(sign | (exponent + 15) << 10 | (uint16_t(std::ldexp(r, 10 - exponent)) & 0x3ff))};
}
inline bf16 to_bf16(double x, Round round = Round::nearest) {
  if (x != x) return {0x7fff};
  const double r = rounded_to(x, 8, -126, round);
  if (std::fabs(r) > 3.3895313892515355e38)
    return {uint16_t((std::signbit(x) ? 0x8000 : 0) | (std::isinf(x) || overflows_to_infinity(x, round) ? 0x7f80 : 0x7f7f))};
  return {uint16_t(std::bit_cast<uint32_t>(float(r)) >> 16)};
}

// min and max: for a number and a NaN returns the number, unless nan_wins; -0 is less than 0.
template <class T>
T least(T a, T b, bool nan_wins) {
  if (a != a || b != b) {
    if (nan_wins || (a != a && b != b)) return canonical(std::numeric_limits<T>::quiet_NaN());
    return a != a ? b : a;
  }
  if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T greatest(T a, T b, bool nan_wins) {
  if (a != a || b != b) {
    if (nan_wins || (a != a && b != b)) return canonical(std::numeric_limits<T>::quiet_NaN());
    return a != a ? b : a;
  }
  if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return a < b ? b : a;
}

// Converts to an integer: clamps to its range; NaN gives 0, or the smallest or middle value if either type has 64 bits.
template <class I, class F>
I to_integer(F x, Round round) {
  if (x != x) {
    if (sizeof(F) < 8 && sizeof(I) < 8) return 0;
    return I(std::make_unsigned_t<I>(1) << (8 * sizeof(I) - 1));
  }
  switch (round) {
    case Round::nearest: x = std::nearbyint(x); break;
    case Round::zero: x = std::trunc(x); break;
    case Round::down: x = std::floor(x); break;
    case Round::up: x = std::ceil(x); break;
  }
  const F past = std::ldexp(F(1), int(8 * sizeof(I)) - (std::is_signed_v<I> ? 1 : 0));
  if (x >= past) return std::numeric_limits<I>::max();
  if (std::is_signed_v<I> ? x < -past : x < 0) return std::numeric_limits<I>::min();
  return I(x);
}
inline float to_whole(float x, Round round) {
  switch (round) {
    case Round::nearest: return std::nearbyint(x);
    case Round::zero: return std::trunc(x);
    case Round::down: return std::floor(x);
    default: return std::ceil(x);
  }
}
inline double to_whole(double x, Round round) {
  switch (round) {
    case Round::nearest: return std::nearbyint(x);
    case Round::zero: return std::trunc(x);
    case Round::down: return std::floor(x);
    default: return std::ceil(x);
  }
}

// Keeps the upper 32 bits.
inline double gross(double x) { return std::bit_cast<double>(std::bit_cast<uint64_t>(x) & 0xffffffff00000000u); }

}  // namespace halfstep::ptx
