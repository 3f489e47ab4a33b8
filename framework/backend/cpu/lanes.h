// SPDX-License-Identifier: Apache-2.0
// Vectors of 64 bytes, which the compiler splits into the instruction set's vectors, and stored values as numbers in them.
#pragma once

#include <cstring>
#include <type_traits>

#include "framework/base/dtype.h"
#include "framework/base/hd.h"

// On a lambda that loops of a function with HS_CLONES call: compiled for their instruction set, not for the oldest.
#define HS_INLINE __attribute__((always_inline))

namespace halfstep::cpu {

inline constexpr int kLanes = 64;  // bytes side by side
template <class T>
struct LanesOf {
  typedef T type __attribute__((vector_size(kLanes)));
};
typedef float Floats __attribute__((vector_size(kLanes)));
typedef double Doubles __attribute__((vector_size(kLanes)));
typedef uint32_t Words __attribute__((vector_size(kLanes)));
typedef uint16_t Halves __attribute__((vector_size(kLanes / 2)));
typedef float HalfFloats __attribute__((vector_size(kLanes / 2)));

// As many stored values as there are lanes, as numbers.
template <class T, class V>
HS_HD void load_lanes(const T* x, V& v) {
  static_assert(std::is_same_v<V, typename LanesOf<T>::type>);
  std::memcpy(&v, x, kLanes);
}
HS_HD void load_lanes(const bf16* x, Floats& v) {
  Halves h;
  std::memcpy(&h, x, sizeof h);
  v = Floats(__builtin_convertvector(h, Words) << 16);
}
HS_HD void load_lanes(const float* x, Doubles& v) {
  HalfFloats f;
  std::memcpy(&f, x, sizeof f);
  v = __builtin_convertvector(f, Doubles);
}

// Zero where lanes do not hold the last `rest` numbers of a row whose whole vectors have been taken.
template <class V>
HS_HD void keep_last(int64_t rest, V& v) {
  constexpr int kWidth = sizeof(V) / sizeof(v[0]);
  decltype(v < v) kept;  // all bits, or none
  for (int k = 0; k < kWidth; ++k) kept[k] = kWidth - 1 - k;
  kept = (kept - int(rest)) >> (8 * int(sizeof(v[0])) - 1);
  v = V(decltype(kept)(v) & kept);
}
// The last `rest` of n stored values in the last lanes, zeros in those before.
template <class T, class V>
HS_HD void load_last(const T* x, int64_t n, int64_t rest, V& v) {
  constexpr int kWidth = sizeof(V) / sizeof(v[0]);
  if (n >= kWidth) {
    load_lanes(x + n - kWidth, v);
  } else {
    T few[kWidth];
    for (int k = 0; k < kWidth; ++k) few[k] = k < kWidth - n ? T(0) : x[k - (kWidth - n)];
    load_lanes(few, v);
  }
  keep_last(rest, v);
}

}  // namespace halfstep::cpu
