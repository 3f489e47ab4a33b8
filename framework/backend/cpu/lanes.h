// SPDX-License-Identifier: Apache-2.0
// 64 bytes of numbers side by side, in vectors of the loop's instruction set, and loads of stored values into them. A loop has one
// sum per lane, so its result does not depend on the instruction set.
//
//   float sum(const float* x, int64_t n) {
//     return with_lanes([=](auto bytes) HS_INLINE {
//       Lanes<float, bytes> sums = {}, v;
//       for (int64_t i = 0; i + 16 <= n; i += 16) load_lanes(x + i, v), sums += v;
//       ...
//
// Vectors must not be wider than the instruction set's: GCC would keep them in memory, which takes many times as long.
#pragma once

#include <cstring>
#include <type_traits>

#include "framework/base/dtype.h"
#include "framework/base/host_device.h"

// Marks a lambda that is called by loops of a function with HS_CLONES or by with_lanes, so that it is compiled for their
// instruction set and not for the oldest one.
#define HS_INLINE __attribute__((always_inline))
#define HS_LANES [[gnu::always_inline]] inline

namespace halfstep::cpu {

inline constexpr int kLanes = 64;  // bytes side by side
template <class T, int bytes>      // of a vector
struct Lanes {
  static constexpr int kParts = kLanes / bytes, kEach = bytes / int(sizeof(T));  // vectors, and numbers in each
  typedef T Part __attribute__((vector_size(bytes)));
  Part part[kParts];

  template <class F>
  HS_LANES Lanes& each(const F& f) {
    for (int k = 0; k < kParts; ++k) f(part[k], k);
    return *this;
  }
  HS_LANES Lanes& operator+=(const Lanes& o) {
    return each([&](Part& p, int k) HS_INLINE { p += o.part[k]; });
  }
  HS_LANES Lanes& operator-=(const Lanes& o) {
    return each([&](Part& p, int k) HS_INLINE { p -= o.part[k]; });
  }
  HS_LANES Lanes& operator*=(const Lanes& o) {
    return each([&](Part& p, int k) HS_INLINE { p *= o.part[k]; });
  }
  HS_LANES Lanes& operator+=(T x) {
    return each([&](Part& p, int) HS_INLINE { p += x; });
  }
  HS_LANES Lanes& operator-=(T x) {
    return each([&](Part& p, int) HS_INLINE { p -= x; });
  }
  HS_LANES Lanes& operator*=(T x) {
    return each([&](Part& p, int) HS_INLINE { p *= x; });
  }
  template <class X>
  HS_LANES friend Lanes operator+(const Lanes& a, const X& b) {
    Lanes sum = a;
    return sum += b;
  }
  template <class X>
  HS_LANES friend Lanes operator-(const Lanes& a, const X& b) {
    Lanes difference = a;
    return difference -= b;
  }
  template <class X>
  HS_LANES friend Lanes operator*(const Lanes& a, const X& b) {
    Lanes product = a;
    return product *= b;
  }
};

// Calls f(bytes), a lambda with HS_INLINE that captures by value. It is compiled for each instruction set, with the bytes of its
// vectors as an integral_constant.
template <int bytes>
using LaneBytes = std::integral_constant<int, bytes>;
#if defined(HALFSTEP_MULTIARCH)
template <class F>
__attribute__((target("arch=x86-64-v4"), noinline)) auto with_lanes_v4(const F& f) {
  return f(LaneBytes<64>());
}
template <class F>
__attribute__((target("arch=x86-64-v3"), noinline)) auto with_lanes_v3(const F& f) {
  return f(LaneBytes<32>());
}
template <class F>
auto with_lanes(const F& f) {
  static const int level = __builtin_cpu_supports("x86-64-v4") ? 4 : __builtin_cpu_supports("x86-64-v3") ? 3 : 2;
  return level == 4 ? with_lanes_v4(f) : level == 3 ? with_lanes_v3(f) : f(LaneBytes<16>());
}
#else
template <class F>
auto with_lanes(const F& f) {
#if defined(__AVX512F__)
  return f(LaneBytes<64>());
#elif defined(__AVX2__)
  return f(LaneBytes<32>());
#else
  return f(LaneBytes<16>());
#endif
}
#endif

// Sets v to 0 in the lanes with x <= zero.
template <class T, int bytes>
HS_LANES void zero_where_at_most(Lanes<T, bytes>& v, const Lanes<T, bytes>& x, T zero) {
  v.each([&](auto& p, int k) HS_INLINE {
    const auto off = x.part[k] <= zero;  // all bits, or none
    p = typename Lanes<T, bytes>::Part(decltype(off)(p) & ~off);
  });
}

// Loads as many stored values as there are lanes, one vector at a time: GCC would copy all 64 bytes through memory.
template <class T, int bytes>
HS_LANES void load_lanes(const T* x, Lanes<T, bytes>& v) {
  v.each([&](auto& p, int k) HS_INLINE { std::memcpy(&p, x + k * v.kEach, bytes); });
}
template <class T, int bytes>
HS_LANES void store_lanes(const Lanes<T, bytes>& v, T* x) {
  for (int k = 0; k < v.kParts; ++k) std::memcpy(x + k * v.kEach, &v.part[k], bytes);
}
template <int bytes>
HS_LANES void load_lanes(const bf16* x, Lanes<float, bytes>& v) {
  v.each([&](auto& p, int k) HS_INLINE {
    typename Lanes<uint16_t, bytes / 2>::Part shorts;
    std::memcpy(&shorts, x + k * v.kEach, sizeof shorts);
    using Words = typename Lanes<uint32_t, bytes>::Part;
    p = typename Lanes<float, bytes>::Part(__builtin_convertvector(shorts, Words) << 16);
  });
}
template <int bytes>
HS_LANES void load_lanes(const float* x, Lanes<double, bytes>& v) {
  v.each([&](auto& p, int k) HS_INLINE {
    typename Lanes<float, bytes / 2>::Part floats;
    std::memcpy(&floats, x + k * v.kEach, sizeof floats);
    using Doubles = typename Lanes<double, bytes>::Part;
    p = __builtin_convertvector(floats, Doubles);
  });
}
// Loads one number, for loops that end with single numbers.
template <class T>
HS_LANES void load_lanes(const T* x, T& v) {
  v = *x;
}
template <class T>
HS_LANES void store_lanes(const T& v, T* x) {
  *x = v;
}

// Zeroes all lanes but the last `rest`: the vector ends where the row does, and its first lanes were processed before.
template <class T, int bytes>
HS_LANES void keep_last(int64_t rest, Lanes<T, bytes>& v) {
  constexpr int kWidth = kLanes / int(sizeof(T));
  T lanes[kWidth];
  store_lanes(v, lanes);
  for (int k = 0; k < kWidth; ++k) lanes[k] = k < kWidth - rest ? T(0) : lanes[k];
  load_lanes(lanes, v);
}
// Loads the last `rest` of n stored values into the last lanes, with zeros before them.
template <class S, class T, int bytes>
HS_LANES void load_last(const S* x, int64_t n, int64_t rest, Lanes<T, bytes>& v) {
  constexpr int kWidth = kLanes / int(sizeof(T));
  if (n >= kWidth) {
    load_lanes(x + n - kWidth, v);
  } else {
    S few[kWidth];
    for (int k = 0; k < kWidth; ++k) few[k] = k < kWidth - n ? S(0) : x[k - (kWidth - n)];
    load_lanes(few, v);
  }
  keep_last(rest, v);
}

}  // namespace halfstep::cpu
