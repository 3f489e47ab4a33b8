// SPDX-License-Identifier: Apache-2.0
// Converts between stored elements and the three types in which kernels compute: float, double and int64.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "framework/base/dtype.h"

namespace halfstep::cpu {

// Computes out[i] = base[i * stride], i < n; exact if C can hold the value. The stride counts elements; 0 repeats one. C may be
// bf16 or bool if t is.
template <class C>
void load(DType t, const void* base, int64_t stride, C* out, int64_t n);
// base[i * stride] = in[i], rounded once; integers wrap, bool stores in != 0.
template <class C>
void store(DType t, const C* in, void* base, int64_t stride, int64_t n);

// Convert whole arrays, with the CPU's conversion instructions if it has them.
void widen(const f16* in, float* out, int64_t n);
void widen(const bf16* in, float* out, int64_t n);
void narrow(const float* in, f16* out, int64_t n);
void narrow(const float* in, bf16* out, int64_t n);

// Rounds d towards zero and sets the last bit if that was inexact, so that a later rounding to 16 bits is as if from d.
inline float round_to_odd(double d) {
  const float f = float(d);
  if (double(f) == d || d != d) return f;
  uint32_t u = std::bit_cast<uint32_t>(f);
  if ((f < 0 ? -double(f) : double(f)) > (d < 0 ? -d : d)) --u;
  return std::bit_cast<float>(u | 1u);
}

// Returns a number as stored in T, which is its own type or bfloat16. Without a branch, so that loops over it vectorise.
template <class T, class C>
[[gnu::always_inline]] inline T stored(C v) {
  static_assert(std::is_same_v<T, C> || (std::is_same_v<T, bf16> && std::is_same_v<C, float>));
  if constexpr (std::is_same_v<T, bf16>) {
    const uint32_t u = std::bit_cast<uint32_t>(v), rounded = u + 0x7fffu + ((u >> 16) & 1u), nan = u | 0x400000u;
    bf16 out;
    out.bits = uint16_t(((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded) >> 16);
    return out;
  } else {
    return v;
  }
}

// Converts one element, rounded once. A float outside int64 becomes its minimum, as on x86; NaN becomes true.
template <class To, class From>
inline To cast(From v) {
  if constexpr (std::is_same_v<To, From>) {
    return v;
  } else if constexpr (std::is_same_v<From, f16> || std::is_same_v<From, bf16>) {
    return cast<To>(float(v));
  } else if constexpr (std::is_same_v<To, bool>) {
    return v != From(0);
  } else if constexpr (std::is_same_v<To, f16> || std::is_same_v<To, bf16>) {
    if constexpr (std::is_same_v<From, float>) {
      return To(v);
    } else if constexpr (std::is_same_v<From, double>) {
      return To(round_to_odd(v));
    } else {
      int64_t x = int64_t(v);  // 52 leading bits and a sticky bit: exact as a double
      if (x > (int64_t(1) << 53) || x < -(int64_t(1) << 53)) x = (x & ~int64_t(0xfff)) | ((x & 0xfff) ? 0x800 : 0);
      return To(round_to_odd(double(x)));
    }
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const bool inside = v >= From(-0x1p63) && v < From(0x1p63);
    return To(inside ? int64_t(v) : INT64_MIN);
  } else {
    return To(v);
  }
}

// The type in which a kernel computes: float (single) for f16, bf16 and f32; double (wide) for f64; int64 for integers and bool.
enum class Compute : uint8_t { integer, single, wide };
constexpr Compute compute_of(DType t) {
  return t == DType::f64 ? Compute::wide : is_floating(t) ? Compute::single : Compute::integer;
}
constexpr Compute wider(Compute a, Compute b) { return a > b ? a : b; }

// Calls f(C{}) with the C++ type of c.
template <class F>
void with_compute(Compute c, F&& f) {
  if (c == Compute::single) return f(float{});
  if (c == Compute::wide) return f(double{});
  f(int64_t{});
}

template <class C>
C load_one(DType t, const void* p) {
  C value;
  load<C>(t, p, 0, &value, 1);
  return value;
}
template <class C>
void store_one(DType t, C value, void* p) {
  store<C>(t, &value, p, 1, 1);
}

}  // namespace halfstep::cpu
