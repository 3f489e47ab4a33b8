// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/cpu/reduce/reduce_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "framework/backend/cpu/lanes.h"
#include "framework/backend/cpu/parallel.h"
#include "framework/math/combine.h"

namespace halfstep::cpu {
namespace {

// Joins numbers, vectors or lanes. Its result for NaN is unspecified; join() corrects that.
template <class Fn, class T, int bytes>
HS_LANES void join_into(Lanes<T, bytes>& a, const Lanes<T, bytes>& b) {
  a.each([&](auto& part, int k) HS_INLINE { Fn::join_into(part, b.part[k]); });
}
struct Max : math::MaxJoin {
  template <class T>
  HS_LANES static void join_into(T& a, const T& b) {
    a = b > a ? b : a;
  }
};
struct Min : math::MinJoin {
  template <class T>
  HS_LANES static void join_into(T& a, const T& b) {
    a = b < a ? b : a;
  }
};
struct Sum : math::SumJoin {
  template <class T>
  HS_LANES static void join_into(T& a, const T& b) {
    a += b;
  }
};
struct Product : math::ProductJoin {
  template <class T>
  HS_LANES static void join_into(T& a, const T& b) {
    a *= b;
  }
};

// Prefetches the next page: a sum takes no longer than reading, but no CPU prefetches beyond the end of a page by itself.
template <class T>
HS_HD void prefetch_ahead(const T* x) {
  constexpr int kPageBytes = 4096;
  __builtin_prefetch(reinterpret_cast<const char*>(x) + kPageBytes);
}

// Make a term of a sum from a number, or from each number of a vector.
struct Identity {
  template <class V>
  HS_LANES static void apply(V&) {}
};
struct Square {
  template <class V>
  HS_LANES static void apply(V& v) {
    v *= v;
  }
};
struct Absolute {
  template <class V>
  HS_LANES static void apply(V& v) {
    v = v < 0 ? -v : v;
  }
};

// Joins the lanes, halves first.
template <class Fn, class T, int bytes>
HS_LANES T fold(const Lanes<T, bytes>& v) {
  constexpr int kWidth = kLanes / int(sizeof(T));
  T lanes[kWidth];
  store_lanes(v, lanes);
  for (int half = kWidth / 2; half >= kWidth / 4; half /= 2) {
    for (int k = 0; k < half; ++k) Fn::join_into(lanes[k], lanes[k + half]);
  }
  if constexpr (sizeof(T) == 4)
    return Fn::join(Fn::join(lanes[0], lanes[2]), Fn::join(lanes[1], lanes[3]));
  else
    return Fn::join(lanes[0], lanes[1]);
}

// Computes sums and products in T of values stored as S, several at a time.
template <class Fn, class Map, class T, class S>
T join_lanes(const S* x, int64_t n, T start) {
  return with_lanes([=](auto bytes) HS_INLINE {
    constexpr int kWidth = kLanes / int(sizeof(T));
    using V = Lanes<T, bytes>;
    V a = V{} + start, b = a, v, w;
    int64_t i = 0;
    for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
      prefetch_ahead(x + i);
      if constexpr (2 * kWidth * int64_t(sizeof(S)) > kCacheLine) prefetch_ahead(x + i + kWidth);
      load_lanes(x + i, v);
      load_lanes(x + i + kWidth, w);
      v.each([](auto& part, int) HS_INLINE { Map::apply(part); });
      w.each([](auto& part, int) HS_INLINE { Map::apply(part); });
      join_into<Fn>(a, v);
      join_into<Fn>(b, w);
    }
    join_into<Fn>(a, b);
    if (i < n) {
      T lanes[kWidth];
      store_lanes(a, lanes);
      for (; i < n; ++i) {
        T term = T(x[i]);
        Map::apply(term);
        lanes[i % kWidth] = Fn::join(lanes[i % kWidth], term);
      }
      load_lanes(lanes, a);
    }
    return fold<Fn>(a);
  });
}
template <class S, class T>
T sum_lanes(Reduce op, const S* x, int64_t n) {
  if (op == Reduce::sum_squares) return join_lanes<Sum, Square, T>(x, n, T(0));
  if (op == Reduce::sum_abs) return join_lanes<Sum, Absolute, T>(x, n, T(0));
  return join_lanes<Sum, Identity, T>(x, n, T(0));
}

// Adds four rows at a time, so that sums are read and written a quarter as often.
template <class S>
HS_CLONES void add_rows(float* into, const S* x, int64_t step, int64_t rows, int64_t n) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const S *a = x + r * step, *b = a + step, *c = b + step, *d = c + step;
    HS_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) into[i] += (float(a[i]) + float(b[i])) + (float(c[i]) + float(d[i]));
  }
  for (; r < rows; ++r) {
    const S* a = x + r * step;
    HS_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) into[i] += float(a[i]);
  }
}

// Returns the greatest or least of some floats. Detects NaN separately, as a magnitude above that of infinity.
template <class Fn>
float extreme_floats(const float* x, int64_t n, float start) {
  return with_lanes([=](auto bytes) HS_INLINE {
    constexpr int kWidth = 16;
    using V = Lanes<float, bytes>;
    using Magnitudes = Lanes<int32_t, bytes>;
    V a = V{} + start, b = a, v, w;
    Magnitudes magnitudes_a = {}, magnitudes_b = {};
    const auto track_magnitude = [&](Magnitudes& most, const V& f) HS_INLINE {
      most.each([&](auto& m, int k) HS_INLINE { Max::join_into(m, typename Magnitudes::Part(f.part[k]) & 0x7fffffff); });
    };
    int64_t i = 0;
    for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
      load_lanes(x + i, v);
      load_lanes(x + i + kWidth, w);
      track_magnitude(magnitudes_a, v);
      track_magnitude(magnitudes_b, w);
      join_into<Fn>(a, v);
      join_into<Fn>(b, w);
    }
    join_into<Fn>(a, b);
    join_into<Max>(magnitudes_a, magnitudes_b);
    float best = fold<Fn>(a);
    int32_t magnitude = fold<Max>(magnitudes_a);
    for (; i < n; ++i) {
      magnitude = std::max(magnitude, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
      Fn::join_into(best, x[i]);
    }
    return magnitude > 0x7f800000 ? std::numeric_limits<float>::quiet_NaN() : best;
  });
}

template <class Fn, class C>
HS_CLONES void join_columns(C* into, const C* x, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) into[i] = Fn::join(into[i], x[i]);
}

template <class Fn, class C>
Wide<C> join_row(const C* x, int64_t n, Wide<C> start) {
  for (int64_t i = 0; i < n; ++i) start = Fn::join(start, Wide<C>(x[i]));
  return start;
}

template <class W>
W lowest() {
  if constexpr (std::is_floating_point_v<W>)
    return -std::numeric_limits<W>::infinity();
  else
    return std::numeric_limits<W>::min();
}
template <class W>
W highest() {
  if constexpr (std::is_floating_point_v<W>)
    return std::numeric_limits<W>::infinity();
  else
    return std::numeric_limits<W>::max();
}

}  // namespace

template <class W>
W reduce_identity(Reduce op) {
  switch (op) {
    case Reduce::prod:
    case Reduce::all: return W(1);
    case Reduce::max: return lowest<W>();
    case Reduce::min: return highest<W>();
    default: return W(0);
  }
}

template <class W>
W reduce_join(Reduce op, W a, W b) {
  switch (op) {
    case Reduce::prod: return m::mul(a, b);
    case Reduce::max: return Max::join(a, b);
    case Reduce::min: return Min::join(a, b);
    case Reduce::any: return W(a != W(0) || b != W(0));
    case Reduce::all: return W(a != W(0) && b != W(0));
    default: return m::add(a, b);
  }
}

template <class C>
Wide<C> reduce_row(Reduce op, const C* x, int64_t n) {
  using W = Wide<C>;
  if (n == 0) return reduce_identity<W>(op);
  switch (op) {
    case Reduce::prod:
      if constexpr (std::is_floating_point_v<C>)  // in double: a product may leave float's range on the way to its result
        return join_lanes<Product, Identity>(x, n, 1.0);
      else
        return join_row<Product>(x, n, W(1));
    case Reduce::max:
      if constexpr (std::is_same_v<C, float>)
        return extreme_floats<Max>(x, n, lowest<float>());
      else
        return join_row<Max>(x, n, lowest<W>());
    case Reduce::min:
      if constexpr (std::is_same_v<C, float>)
        return extreme_floats<Min>(x, n, highest<float>());
      else
        return join_row<Min>(x, n, highest<W>());
    case Reduce::any:
      for (int64_t i = 0; i < n; ++i) {
        if (x[i] != C(0)) return W(1);
      }
      return W(0);
    case Reduce::all:
      for (int64_t i = 0; i < n; ++i) {
        if (x[i] == C(0)) return W(0);
      }
      return W(1);
    default:
      if constexpr (std::is_floating_point_v<C>)
        return sum_lanes<C, C>(op, x, n);
      else
        return join_row<Sum>(x, n, W(0));
  }
}

double sum_row(Reduce op, const bf16* x, int64_t n) { return sum_lanes<bf16, float>(op, x, n); }
void sum_columns(float* into, const float* x, int64_t step, int64_t rows, int64_t n) { add_rows(into, x, step, rows, n); }
void sum_columns(float* into, const bf16* x, int64_t step, int64_t rows, int64_t n) { add_rows(into, x, step, rows, n); }

template <class C>
void reduce_columns(Reduce op, C* into, const C* x, int64_t n) {
  switch (op) {
    case Reduce::prod: return join_columns<Product>(into, x, n);
    case Reduce::max: return join_columns<Max>(into, x, n);
    case Reduce::min: return join_columns<Min>(into, x, n);
    case Reduce::any:
      for (int64_t i = 0; i < n; ++i) into[i] = C(into[i] != C(0) || x[i] != C(0));
      return;
    case Reduce::all:
      for (int64_t i = 0; i < n; ++i) into[i] = C(into[i] != C(0) && x[i] != C(0));
      return;
    default: return join_columns<Sum>(into, x, n);
  }
}

template double reduce_identity<double>(Reduce);
template int64_t reduce_identity<int64_t>(Reduce);
template double reduce_join<double>(Reduce, double, double);
template int64_t reduce_join<int64_t>(Reduce, int64_t, int64_t);
template double reduce_row<float>(Reduce, const float*, int64_t);
template double reduce_row<double>(Reduce, const double*, int64_t);
template int64_t reduce_row<int64_t>(Reduce, const int64_t*, int64_t);
template void reduce_columns<float>(Reduce, float*, const float*, int64_t);
template void reduce_columns<double>(Reduce, double*, const double*, int64_t);
template void reduce_columns<int64_t>(Reduce, int64_t*, const int64_t*, int64_t);

}  // namespace halfstep::cpu
