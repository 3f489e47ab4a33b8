// SPDX-License-Identifier: Apache-2.0
// Scalar functions for host and device: the `m::` of elementwise.def. On the CPU the float versions of the common ones are
// branch-free (host_float.h) so that loops over them vectorise. erfinv, digamma, zeta and polygamma are written here; most
// others are libm's.
#pragma once

#include <math.h>
#include <stdint.h>

#include <initializer_list>

#include "framework/base/host_device.h"
#include "framework/math/host_float.h"

namespace halfstep {

// Chooses a or b. expr.h has the same for tensors.
template <class T>
HS_HD T select(bool c, T a, T b) {
  return c ? a : b;
}

namespace m {

// Adds, subtracts and multiplies. Integers wrap as in PyTorch: overflow of signed numbers is undefined in C++.
template <class T>
HS_HD T neg(T x) {
  return -x;
}
template <class T>
HS_HD T add(T a, T b) {
  return a + b;
}
template <class T>
HS_HD T sub(T a, T b) {
  return a - b;
}
template <class T>
HS_HD T mul(T a, T b) {
  return a * b;
}
HS_HD int64_t neg(int64_t x) { return int64_t(0 - uint64_t(x)); }
HS_HD int64_t add(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }
HS_HD int64_t sub(int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); }
HS_HD int64_t mul(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }

// Integer versions, for the rows of elementwise.def whose kind is `any` or `number`.
HS_HD int64_t abs(int64_t x) { return x < 0 ? neg(x) : x; }
HS_HD int64_t sign(int64_t x) { return (x > 0) - (x < 0); }
HS_HD int64_t floor(int64_t x) { return x; }
HS_HD int64_t ceil(int64_t x) { return x; }
HS_HD int64_t round(int64_t x) { return x; }
HS_HD int64_t trunc(int64_t x) { return x; }
HS_HD int64_t log(int64_t) { return 0; }  // only gradients name it, which integers do not have
HS_HD int64_t pow(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  uint64_t result = 1, base = uint64_t(a);  // wraps as mul does
  for (; b > 0; b >>= 1, base *= base)
    if (b & 1) result *= base;
  return int64_t(result);
}

HS_HD int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) return 0;  // an integer division by 0 would end the program
  if (b == -1) return neg(a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
HS_HD int64_t trunc_divide(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? neg(a) : a / b;
}
HS_HD int64_t fmod(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
HS_HD int64_t remainder(int64_t a, int64_t b) {
  const int64_t r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

HS_HD float abs(float x) { return ::fabsf(x); }
HS_HD double abs(double x) { return ::fabs(x); }
template <class T>
HS_HD T sign(T x) {
  return T((x > T(0)) - (x < T(0)));
}
HS_HD float floor(float x) { return ::floorf(x); }
HS_HD double floor(double x) { return ::floor(x); }
HS_HD float ceil(float x) { return ::ceilf(x); }
HS_HD double ceil(double x) { return ::ceil(x); }
HS_HD float round(float x) { return ::rintf(x); }
HS_HD double round(double x) { return ::rint(x); }
HS_HD float trunc(float x) { return ::truncf(x); }
HS_HD double trunc(double x) { return ::trunc(x); }
HS_HD float sqrt(float x) { return ::sqrtf(x); }
HS_HD double sqrt(double x) { return ::sqrt(x); }

#define HS_LIBM(name)                                \
  HS_HD float name(float x) { return ::name##f(x); } \
  HS_HD double name(double x) { return ::name(x); }
#ifdef __CUDA_ARCH__
#define HS_OWN(name) HS_LIBM(name)
#else
#define HS_OWN(name)                                  \
  HS_HD float name(float x) { return host::name(x); } \
  HS_HD double name(double x) { return ::name(x); }
#endif
// clang-format off
HS_OWN(exp) HS_OWN(exp2) HS_OWN(expm1) HS_OWN(log) HS_OWN(log2) HS_OWN(log1p) HS_OWN(tanh) HS_OWN(erf) HS_OWN(erfc)
HS_LIBM(log10) HS_LIBM(sin) HS_LIBM(cos) HS_LIBM(tan) HS_LIBM(asin) HS_LIBM(acos) HS_LIBM(atan)
HS_LIBM(sinh) HS_LIBM(cosh) HS_LIBM(asinh) HS_LIBM(acosh) HS_LIBM(atanh)
// clang-format on
#undef HS_OWN
#undef HS_LIBM
// Also e^-|x|.
#ifdef __CUDA_ARCH__
HS_HD float pow(float a, float b) { return ::powf(a, b); }
HS_HD float exp_of_minus(float x) { return ::expf(-::fabsf(x)); }
#else
HS_HD float pow(float a, float b) { return host::pow(a, b); }
HS_HD float exp_of_minus(float x) { return host::exp_of_minus(x); }
#endif
// The two share one exponential, which CUDA's normcdff and expf do not: they would take twice as many instructions.
HS_HD float normal_cdf(float x) { return host::normal_cdf(x); }
HS_HD float normal_pdf(float x) { return host::normal_pdf(x); }
HS_HD double normal_cdf(double x) { return 0.5 * ::erfc(x * -0.70710678118654752); }
HS_HD double normal_pdf(double x) { return 0.39894228040143268 * ::exp(-0.5 * x * x); }
HS_HD double exp_of_minus(double x) { return ::exp(-::fabs(x)); }
HS_HD double pow(double a, double b) { return ::pow(a, b); }
HS_HD float atan2(float a, float b) { return ::atan2f(a, b); }
HS_HD double atan2(double a, double b) { return ::atan2(a, b); }

HS_HD float hypot(float a, float b) { return ::hypotf(a, b); }
HS_HD double hypot(double a, double b) { return ::hypot(a, b); }
HS_HD float copysign(float a, float b) { return ::copysignf(a, b); }
HS_HD double copysign(double a, double b) { return ::copysign(a, b); }
HS_HD float fmod(float a, float b) { return ::fmodf(a, b); }
HS_HD double fmod(double a, double b) { return ::fmod(a, b); }
template <class T>
HS_HD T remainder(T a, T b) {
  const T r = fmod(a, b);
  return r != T(0) && (r < T(0)) != (b < T(0)) ? r + b : r;
}
// Computes it from the remainder, because floor(a / b) may round up to the next integer.
template <class T>
HS_HD T floor_divide(T a, T b) {
  const T r = fmod(a, b);
  T q = (a - r) / b;
  if (b == T(0)) return a / b;
  if (r != T(0) && (r < T(0)) != (b < T(0))) q -= T(1);
  const T whole = floor(q);
  return q - whole > T(0.5) ? whole + T(1) : whole;
}

template <class T>
HS_HD T trunc_divide(T a, T b) {
  return trunc(a / b);
}

#ifdef __CUDA_ARCH__
HS_HD float erfinv(float x) { return ::erfinvf(x); }
HS_HD double erfinv(double x) { return ::erfinv(x); }
#else
// Starts within 1e-6 (M. Giles, "Approximating the erfinv function", 2012), then refines by Halley steps on erfc, which keeps its
// digits where erf is near 1.
HS_HD double erfinv(double x) {
  const double size = ::fabs(x);
  if (!(size < 1)) return size == 1 ? x * INFINITY : NAN;
  if (size == 0) return x;
  double w = -::log((1 - size) * (1 + size)), y;
  if (w < 5) {
    w -= 2.5;
    y = 2.81022636e-08;
    for (double c :
         {3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941})
      y = y * w + c;
  } else {
    w = ::sqrt(w) - 3;
    y = -0.000200214257;
    for (double c :
         {0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682})
      y = y * w + c;
  }
  y *= size;
  for (int step = 0; step < 2; ++step) {
    const double error = size < 0.5 ? ::erf(y) - size : (1 - size) - ::erfc(y);
    const double newton = error / (1.1283791670955126 * ::exp(-y * y));
    y -= newton / (1 + y * newton);
  }
  return x < 0 ? -y : y;
}
HS_HD float erfinv(float x) { return float(erfinv(double(x))); }
#endif

#ifdef __CUDA_ARCH__
HS_HD float lgamma(float x) { return ::lgammaf(x); }
HS_HD double lgamma(double x) { return ::lgamma(x); }
#else
// Avoids the C library's lgamma, which writes Gamma's sign to a variable shared by all threads.
HS_HD float lgamma(float x) {
  int sign;
  return ::lgammaf_r(x, &sign);
}
HS_HD double lgamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);
}
#endif

// Returns the derivative of ln Gamma: by reflection for x <= 0, by psi(x) = psi(x + 1) - 1 / x up to 10, and above by the
// asymptotic series (NIST's Digital Library of Mathematical Functions, 5.5 and 5.11). The poles are -inf at +0, +inf at -0
// and NaN below, as in PyTorch.
HS_HD double digamma(double x) {
  constexpr double kPi = 3.14159265358979324;
  double mirrored = 0;
  if (x == 0) return -INFINITY * ::copysign(1.0, x);
  if (x < 0) {
    if (x == ::floor(x)) return NAN;
    mirrored = -kPi / ::tan(kPi * (x - ::floor(x)));
    x = 1 - x;
  }
  double below = 0;
  for (; x < 10; x += 1) below += 1 / x;
  const double z = 1 / (x * x);
  double tail = 1.0 / 12;
  constexpr double kSeries[] = {-691.0 / 32760, 1.0 / 132, -1.0 / 240, 1.0 / 252, -1.0 / 120, 1.0 / 12};
  for (int i = 0; i < 6; ++i) tail = tail * z + kSeries[i];
  return x == INFINITY ? x : ::log(x) - 0.5 / x - tail * z - below + mirrored;
}
HS_HD float digamma(float x) { return float(digamma(double(x))); }

// Returns Hurwitz's zeta, the sum of (x + k)^-s over k >= 0, s > 1: the first terms, then the Euler-Maclaurin formula (DLMF
// 25.11). For x <= 0 it is defined for integer s only, and infinite at integer x.
HS_HD double zeta(double s, double x) {
  if (x <= 0 && (x == ::floor(x) || s != ::floor(s))) return x == ::floor(x) ? INFINITY : NAN;
  double sum = 0;
  int k = 0;
  for (; k < 10 || x < 10; ++k, x += 1) {
    if (k > 100000) return NAN;  // x is so far below 0 that the sum would take too long
    sum += ::pow(x, -s);
  }
  const double power = ::pow(x, -s);
  sum += power * x / (s - 1) + 0.5 * power;
  // B_2j / (2j)! s (s + 1)...(s + 2j - 2) x^(-s - 2j + 1)
  double factor = s * power / x;
  constexpr double kSeries[] = {
      1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160, -691.0 / 1307674368000.0, 1.0 / 74724249600.0};
  for (int j = 1; j <= 7; ++j) {
    sum += kSeries[j - 1] * factor;
    factor *= (s + 2 * j - 1) * (s + 2 * j) / (x * x);
  }
  return sum;
}

// Returns the (n + 1)-th derivative of ln Gamma, n >= 1: (-1)^(n + 1) n! zeta(n + 1, x).
HS_HD double polygamma(double n, double x) { return (::fmod(n, 2.0) == 0 ? -1 : 1) * ::tgamma(n + 1) * zeta(n + 1, x); }
HS_HD float polygamma(float n, float x) { return float(polygamma(double(n), double(x))); }

// Returns max(x, least), but with the derivative of x everywhere.
template <class T>
HS_HD T raised(T x, T least) {
  return x < least ? least : x;
}

// Stable for large |x|: takes the exponential of -|x| only.
template <class T>
HS_HD T sigmoid(T x) {
  const T e = exp_of_minus(x);
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}
template <class T>
HS_HD T softplus(T x) {
  return (x < T(0) ? T(0) : x) + log1p(exp_of_minus(x));
}

// Return tanh(softplus(x)) and the derivative of x tanh(softplus(x)), by one exponential. With w = e^x the first is
// w (w + 2) / (w (w + 2) + 2); for x > 0 both sides of the fraction are divided by w^2.
template <class T>
HS_HD T mish_factor(T x) {
  const T e = exp_of_minus(x), top = x < T(0) ? e * (e + T(2)) : T(1) + T(2) * e;
  return top / (top + T(2) * (x < T(0) ? T(1) : e * e));
}
template <class T>
HS_HD T mish_slope(T x) {
  const T e = exp_of_minus(x), top = x < T(0) ? e * (e + T(2)) : T(1) + T(2) * e;
  const T part = T(1) / (top + T(2) * (x < T(0) ? T(1) : e * e));
  return top * part + x * (T(4) * (x < T(0) ? e : e * e) * (T(1) + e) * part * part);
}

}  // namespace m
}  // namespace halfstep
