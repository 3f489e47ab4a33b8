// SPDX-License-Identifier: Apache-2.0
// Branch-free float functions for the CPU, so that loops over them vectorise; those of the normal distribution are for GPUs too. At
// most 2 ulp from the true value over the whole range (erfc: 5, normal_cdf: 10; measured in tests/math/scalar_test.cpp), with inf,
// NaN, signed zero and subnormals as libm has them.
// Range reductions are Cody & Waite's (1980); the polynomials are minimax fits made for these intervals.
#pragma once

#include <stdint.h>
#include <string.h>

#include "framework/base/host_device.h"

namespace halfstep::m::host {

HS_HD uint32_t bits_of(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}
HS_HD float float_of(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}
HS_HD float magnitude(float x) { return float_of(bits_of(x) & 0x7fffffffu); }
HS_HD float with_sign_of(float x, float sign) { return float_of(bits_of(x) | (bits_of(sign) & 0x80000000u)); }  // x >= 0

inline constexpr float kInf = __builtin_inff(), kNan = __builtin_nanf("");
inline constexpr float kRounder = 12582912.0f;  // 1.5 2^23: adding it rounds to an integer, left in the low bits
inline constexpr uint32_t kRounderBits = 0x4B400000u;
inline constexpr uint32_t kOneBits = 0x3f800000u, kSqrtHalfBits = 0x3f3504f3u, kFractionBits = 0x007fffffu;
inline constexpr float kSmallestNormal = 1.17549435e-38f;
inline constexpr float kTwo23 = 8388608.0f;  // 2^23: makes subnormal numbers normal; from it on all floats are integers
inline constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;
inline constexpr float kLn2Hi = 0.693359375f, kLn2Lo = -2.12194440e-4f;  // their sum is ln 2; n kLn2Hi is exact for |n| < 2^14

HS_HD float power_of_two(int32_t n) { return float_of(uint32_t(n + 127) << 23); }  // -127 < n < 128

// Returns e^r - 1 for |r| <= ln(2)/2.
HS_HD float expm1_core(float r) {
  float q = 0.000199140879f;
  q = q * r + 0.00139463542f;
  q = q * r + 0.0083332723f;
  q = q * r + 0.0416662656f;
  q = q * r + 0.166666672f;
  q = q * r + 0.5f;
  return q * (r * r) + r;
}

// Returns e^r for |r| <= ln(2)/2.
HS_HD float exp_core(float r) {
  float q = 0.00138146419f;
  q = q * r + 0.00836870968f;
  q = q * r + 0.0416683869f;
  q = q * r + 0.166665207f;
  q = q * r + 0.499999935f;
  return 1.0f + (q * (r * r) + r);
}

// Returns p 2^n by two factors, so that subnormal results round once and n = 128 is reachable.
HS_HD float scale_by(float p, int32_t n) {
  const int32_t half = n >> 1;
  return p * power_of_two(half) * power_of_two(n - half);
}

HS_HD float exp(float x) {
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const float t = x * kLog2e + kRounder;
  const float n = t - kRounder;
  const float r = (x - n * kLn2Hi) - n * kLn2Lo;
  return scale_by(exp_core(r), int32_t(bits_of(t) - kRounderBits));
}

HS_HD float exp2(float x) {
  x = x > 129.0f ? 129.0f : x;
  x = x < -151.0f ? -151.0f : x;
  const float t = x + kRounder;
  const float n = t - kRounder;
  return scale_by(exp_core((x - n) * kLn2), int32_t(bits_of(t) - kRounderBits));
}

// Returns e^x 2^64 for -110 < x <= 0. The caller multiplies by kBelow last, so that a subnormal result rounds once.
inline constexpr float kBelow = 0x1p-64f;
HS_HD float exp_above(float x, float low = 0.0f) {
  const float t = (x + low) * kLog2e + kRounder;
  const float n = t - kRounder;
  const float r = ((x - n * kLn2Hi) - n * kLn2Lo) + low;
  return exp_core(r) * float_of((bits_of(t) << 23) + ((127u + 64u) << 23));
}
// Returns e^-|x| in fewer steps than exp.
HS_HD float exp_of_minus(float x) {
  x = float_of(bits_of(x) | 0x80000000u);
  return exp_above(x < -104.0f ? -104.0f : x) * kBelow;
}

HS_HD float expm1(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -18.0f ? -18.0f : c;
  const float t = c * kLog2e + kRounder;
  const float n = t - kRounder;
  const float r = (c - n * kLn2Hi) - n * kLn2Lo;
  const float s = power_of_two(int32_t(bits_of(t) - kRounderBits) - 1);  // halved: n = 128 must not overflow
  const float y = 2.0f * (s * expm1_core(r) + (s - 0.5f));
  return x == 0.0f ? x : y;
}

// Splits x = 2^exponent (1 + f), with f in [sqrt(1/2) - 1, sqrt(2) - 1]. x must be positive and finite.
struct FloatParts {
  float exponent, f;
};
HS_HD FloatParts split(float x) {
  const bool tiny = x < kSmallestNormal;
  const uint32_t u = bits_of(tiny ? x * kTwo23 : x);
  const uint32_t shifted = u + (kOneBits - kSqrtHalfBits);  // the exponent changes at sqrt(1/2)
  const int32_t e = int32_t(shifted >> 23) - 127;
  return {float(e) - (tiny ? 23.0f : 0.0f), float_of((shifted & kFractionBits) + kSqrtHalfBits) - 1.0f};
}

// Returns ln(1 + f) - f.
HS_HD float log1p_core(float f) {
  float q = 0.0674257278f;
  q = q * f - 0.116693944f;
  q = q * f + 0.11886552f;
  q = q * f - 0.12406601f;
  q = q * f + 0.142199367f;
  q = q * f - 0.166679457f;
  q = q * f + 0.200020954f;
  q = q * f - 0.250000089f;
  q = q * f + 0.333333135f;
  const float z = f * f;
  return q * f * z - 0.5f * z;
}

HS_HD float finite_log(float x) {
  const FloatParts s = split(x);
  return (log1p_core(s.f) + s.exponent * kLn2Lo + s.f) + s.exponent * kLn2Hi;
}

// Returns log or log2 outside (0, inf), and y inside.
HS_HD float log_domain(float x, float y) {
  y = x == kInf ? kInf : y;
  y = x == 0.0f ? -kInf : y;
  return x >= 0.0f ? y : kNan;
}

HS_HD float log(float x) { return log_domain(x, finite_log(x)); }

HS_HD float log2(float x) {
  const FloatParts s = split(x);
  const float rest = log1p_core(s.f);
  // Multiplies f by log2(e) = 1.4375 + 0.00519504, so that the product keeps its low bits.
  const float high = float_of(bits_of(s.f) & 0xfffff000u);
  const float low = (s.f - high) + rest;
  return log_domain(x, (low * kLog2e + high * 0.00519504089f) + high * 1.4375f + s.exponent);
}

HS_HD float log1p(float x) {
  const float u = 1.0f + x;
  const float lost = (x - (u - 1.0f)) / u;  // rounding error of u
  const float y = log_domain(u, finite_log(u) + lost);
  return x == 0.0f ? x : y;
}

HS_HD float tanh(float x) {
  const float z = x * x;
  float q = -0.00571963238f;
  q = q * z + 0.0206529032f;
  q = q * z - 0.0537441932f;
  q = q * z + 0.133314997f;
  q = q * z - 0.333332837f;
  const float small = q * z * x + x;
  const float a = magnitude(x);
  const float e = exp_of_minus(2.0f * a);
  const float large = with_sign_of((1.0f - e) / (1.0f + e), x);
  const float y = a < 0.625f ? small : large;
  return x == 0.0f ? x : y;
}

// Returns erfc(a) e^(a^2) for 0 <= a <= 10.1; finite above.
HS_HD float scaled_erfc(float a) {
  const float q = (a - 3.0f) / (a + 3.0f);
  float p = -0.000268119213f;
  p = p * q - 0.000777528621f;
  p = p * q + 0.00200188393f;
  p = p * q + 0.0025673646f;
  p = p * q - 0.0237975921f;
  p = p * q + 0.0682957545f;
  p = p * q - 0.119270958f;
  p = p * q + 0.12964642f;
  p = p * q - 0.0475624017f;
  p = p * q - 0.135621145f;
  p = p * q + 1.25300801f;
  return p / (1.0f + 2.0f * a);
}

// Returns erf for |x| < 0.93.
HS_HD float small_erf(float x) {
  const float z = x * x;
  float q = -0.00059763121f;
  q = q * z + 0.00499084918f;
  q = q * z - 0.026765462f;
  q = q * z + 0.112817995f;
  q = q * z - 0.376124948f;
  q = q * z + 0.128379151f;
  return q * x + x;
}

HS_HD float erf(float x) {
  float a = magnitude(x);
  a = a > 5.0f ? 5.0f : a;
  const float large = with_sign_of(1.0f - scaled_erfc(a) * exp(-a * a), x);
  return magnitude(x) < 0.93f ? small_erf(x) : large;
}

HS_HD float erfc(float x) {
  float a = magnitude(x);
  a = a > 10.5f ? 10.5f : a;
  // a^2 = high^2 + (a - high)(a + high), where the first term is exact: e^(-a^2) would lose the rounding error of a * a.
  const float high = float_of(bits_of(a) & 0xfffff000u);
  const float tail = scaled_erfc(a) * exp(-high * high) * exp((high - a) * (high + a));
  const float large = x < 0.0f ? 2.0f - tail : tail;
  return a < 0.5f ? 1.0f - small_erf(x) : large;
}

#ifdef __CUDA_ARCH__
// Return 1/x, refined, and 2^x within two ulp, without what a division and exp2f do for very small and large numbers.
HS_HD float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return ::fmaf(::fmaf(-x, y, 1.0f), y, y);
}
HS_HD float short_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
HS_HD float reciprocal(float x) { return 1.0f / x; }
#endif

// Returns e^(-z^2/2) 2^64 for 0 <= z <= 14.5. The exponential would lose the rounding error of z * z.
HS_HD float bell(float z) {
#ifdef __CUDA_ARCH__
  const float t = z * z * (-0.5f * kLog2e) + kRounder, n = t - kRounder;
  const float r = n * (2.0f * kLn2Lo) + ::fmaf(z, z, n * (2.0f * kLn2Hi));  // -2 times exp_above's
  return short_exp2(r * (-0.5f * kLog2e)) * float_of((bits_of(t) << 23) + ((127u + 64u) << 23));
#else
  // z^2 = high^2 + (z - high)(z + high), where the first term is exact.
  const float high = float_of(bits_of(z) & 0xfffff000u);
  return exp_above(-0.5f * high * high, (high - z) * (0.5f * (high + z)));
#endif
}
// Returns |x| up to 14.5, beyond which bell is 0.
HS_HD float bell_place(float x) { return magnitude(x) > 14.5f ? 14.5f : magnitude(x); }

// Return the density of the normal distribution (within 6 ulp), and its integral Phi(x) (within 10 ulp in the far tail).
HS_HD float normal_pdf(float x) { return bell(bell_place(x)) * (0.398942280f * kBelow); }
HS_HD float normal_cdf(float x) {
  const float z = bell_place(x), t = reciprocal(z + 3.5f), q = (z - 3.5f) * t;
  float p = 0.00011068882f * kBelow;  // (z + 3.5) e^(z^2/2) Phi(-z) 2^-64
  p = p * q + 0.00042189639f * kBelow;
  p = p * q - 0.00049494413f * kBelow;
  p = p * q - 0.00317530966f * kBelow;
  p = p * q + 0.0064931165f * kBelow;
  p = p * q + 0.0174063781f * kBelow;
  p = p * q - 0.116053041f * kBelow;
  p = p * q + 0.315425049f * kBelow;
  p = p * q - 0.565561745f * kBelow;
  p = p * q + 0.744416074f * kBelow;
  const float tail = bell(z) * (p * t);
  return x < 0.0f ? tail : 1.0f - tail;
}

// pow has three steps, each for a loop of its own over an array: in one loop the chain of operations would be longer than a CPU can
// overlap. The exponent between the steps is a double, because a float would lose visible bits.

// Returns y log2|x| within [-160, 160]; unspecified if x or y is 0, infinite or NaN.
HS_HD double pow_exponent(float x, float y) {
  const float a = magnitude(x);
  const bool tiny = a < kSmallestNormal;
  const uint32_t u = bits_of(tiny ? a * kTwo23 : a);
  // a = 2^e m, m in [sqrt(1/2), sqrt(2)).
  const uint32_t shifted = u + (kOneBits - kSqrtHalfBits);
  const int32_t e = int32_t(shifted >> 23) - (tiny ? 150 : 127);
  const float m = float_of((shifted & kFractionBits) + kSqrtHalfBits);
  // log2 m through t = (m - 1)/(m + 1): a float quotient and one Newton step.
  const float reciprocal = 1.0f / (m + 1.0f);
  const double c = double(reciprocal), t0 = (double(m) - 1.0) * c, t = t0 + t0 * (1.0 - (double(m) + 1.0) * c), s = t * t;
  double q = 0.28290144493216883;
  q = q * s + 0.3199056120068346;
  q = q * s + 0.41220925432426483;
  q = q * s + 0.57707794234684287;
  q = q * s + 0.96179669411340047;
  q = q * s + 2.88539008177785;
  const double z = double(y) * (double(e) + q * t);
  return z > 160.0 ? 160.0 : z < -160.0 ? -160.0 : z;
}
// Returns 2^z for |z| <= 160.
HS_HD float pow_power(double z) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 2^52
  const double rounded = z + kRound, r = (z - (rounded - kRound)) * 0.69314718055994531;
  double p = 0.000197903255166;
  p = p * r + 0.00139446483521;
  p = p * r + 0.00833349707711;
  p = p * r + 0.0416662951026;
  p = p * r + 0.16666665869;
  p = p * r + 0.500000006764;
  p = p * r + 1.0;
  p = p * r + 1.0;
  uint64_t bits;
  memcpy(&bits, &rounded, 8);
  const uint64_t scale_bits = (bits + 1023u) << 52;
  double scale;
  memcpy(&scale, &scale_bits, 8);
  return float(p * scale);
}
// Returns whether 2^(y log2|x|) is x^y without a correction.
HS_HD bool pow_is_plain(float x, float y) { return (x > 0.0f) & (x < kInf) & (magnitude(y) < kInf); }
// Returns x^y, given 2^(y log2|x|).
HS_HD float pow_domain(float x, float y, float power) {
  const float a = magnitude(x);
  const bool up = y > 0.0f;
  float result = a == kInf ? (up ? kInf : 0.0f) : power;
  result = a == 0.0f ? (up ? 0.0f : kInf) : result;
  result = (x != x) | (y != y) ? kNan : result;
  const float half = y * 0.5f;
  const bool is_integer = (magnitude(y) >= kTwo23) | ((magnitude(y) + kTwo23) - kTwo23 == magnitude(y));
  const bool even = (magnitude(half) >= kTwo23) | ((magnitude(half) + kTwo23) - kTwo23 == magnitude(half));
  const bool negative = (bits_of(x) & 0x80000000u) != 0;
  result = negative & is_integer & !even ? -result : result;
  result = (x < 0.0f) & !is_integer & (a != kInf) ? kNan : result;
  result = (x == -1.0f) & (magnitude(y) == kInf) ? 1.0f : result;
  return (y == 0.0f) | (x == 1.0f) ? 1.0f : result;
}
HS_HD float pow(float x, float y) { return pow_domain(x, y, pow_power(pow_exponent(x, y))); }

}  // namespace halfstep::m::host
