#include "framework/backend/cpu/reduce_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "framework/backend/cpu/simd.h"

namespace halfstep::cpu {
namespace {

// NaN wins over everything, and the first one stays.
struct Max {
  template <class T>
  HS_HD static T join(T a, T b) {
    return b > a || b != b ? b : a;
  }
};
struct Min {
  template <class T>
  HS_HD static T join(T a, T b) {
    return b < a || b != b ? b : a;
  }
};
struct Sum {
  template <class T>
  HS_HD static T join(T a, T b) {
    return a + b;
  }
  template <class T>
  static void into(T& a, const T& b) {
    a += b;
  }
};
struct Product {
  template <class T>
  HS_HD static T join(T a, T b) {
    return a * b;
  }
  template <class T>
  static void into(T& a, const T& b) {
    a *= b;
  }
};

constexpr int kLanes = 64;  // bytes side by side; split into what the instruction set has
template <class T>
struct LanesOf {
  typedef T type __attribute__((vector_size(kLanes)));
};

// Sums and products, with several under way at a time.
template <class Fn, class T>
HS_CLONES T join_lanes(const T* x, int64_t n, T start) {
  using Lanes = typename LanesOf<T>::type;
  constexpr int kWidth = kLanes / int(sizeof(T));
  Lanes a = Lanes{} + start, b = a, v, w;
  int64_t i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
    std::memcpy(&v, x + i, kLanes);
    std::memcpy(&w, x + i + kWidth, kLanes);
    Fn::into(a, v);
    Fn::into(b, w);
  }
  Fn::into(a, b);
  for (; i < n; ++i) a[i % kWidth] = Fn::join(a[i % kWidth], x[i]);
  for (int half = kWidth / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) a[k] = Fn::join(a[k], a[k + half]);
  }
  return a[0];
}

// Floats as integers of the same order, which the compiler reduces in lanes; NaN is noted on the side.
HS_HD int32_t ordered(int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }  // its own inverse
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

HS_CLONES float max_floats(const float* x, int64_t n) {
  int32_t top = INT32_MIN;
  uint32_t nan = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t bits = std::bit_cast<int32_t>(x[i]);
    nan |= uint32_t((bits & 0x7fffffff) > 0x7f800000);
    top = std::max(top, ordered(bits));
  }
  return nan ? kNan : std::bit_cast<float>(ordered(top));
}
HS_CLONES float min_floats(const float* x, int64_t n) {
  int32_t low = INT32_MAX;
  uint32_t nan = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t bits = std::bit_cast<int32_t>(x[i]);
    nan |= uint32_t((bits & 0x7fffffff) > 0x7f800000);
    low = std::min(low, ordered(bits));
  }
  return nan ? kNan : std::bit_cast<float>(ordered(low));
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
    case Reduce::prod: return a * b;
    case Reduce::max: return Max::join(a, b);
    case Reduce::min: return Min::join(a, b);
    case Reduce::any: return W(a != W(0) || b != W(0));
    case Reduce::all: return W(a != W(0) && b != W(0));
    default: return a + b;
  }
}

template <class C>
Wide<C> reduce_row(Reduce op, const C* x, int64_t n) {
  using W = Wide<C>;
  if (n == 0) return reduce_identity<W>(op);
  switch (op) {
    case Reduce::prod:
      if constexpr (std::is_same_v<C, double>)
        return join_lanes<Product>(x, n, 1.0);
      else
        return join_row<Product>(x, n, W(1));
    case Reduce::max:
      if constexpr (std::is_same_v<C, float>)
        return max_floats(x, n);
      else
        return join_row<Max>(x, n, lowest<W>());
    case Reduce::min:
      if constexpr (std::is_same_v<C, float>)
        return min_floats(x, n);
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
        return join_lanes<Sum>(x, n, C(0));
      else
        return join_row<Sum>(x, n, W(0));
  }
}

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
