// Vectors of 64 bytes, which the compiler splits into what the instruction set has, and stored values as numbers in them.
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

}  // namespace halfstep::cpu
