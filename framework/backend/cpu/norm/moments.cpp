// SPDX-License-Identifier: Apache-2.0
// mean = sum x / n and squares = sum (x - mean)^2, in two passes over a block that stays in the cache. Blocks a and b are merged by
//
//   d = mean_b - mean_a,   mean = mean_a + d n_b / n,   squares = squares_a + squares_b + d^2 n_a n_b / n,   n = n_a + n_b
#include "framework/backend/cpu/norm/moments.h"

#include <algorithm>
#include <cstring>

#include "framework/backend/cpu/lanes.h"
#include "framework/backend/cpu/parallel.h"

namespace halfstep::cpu {
namespace {

// Adds up (x - center) and (x - center)^2. With find_center, first sets center to the mean of x.
template <bool find_center, class C, class T>
void add_up(const T* x, C& center, int64_t n, double& sum, double& squares) {
  struct Sums {
    C center, sum, squares;
  };
  const Sums found = with_lanes([=, middle = center](auto bytes) HS_INLINE {
    using V = Lanes<C, bytes>;
    constexpr int kWidth = kLanes / int(sizeof(C));
    const int64_t whole = n / kWidth * kWidth, rest = n - whole;
    C lanes[kWidth];
    V sum_v = {}, squares_v = {}, v;
    C about = middle;
    if constexpr (find_center) {
      for (int64_t i = 0; i < whole; i += kWidth) {
        load_lanes(x + i, v);
        sum_v += v;
      }
      if (rest > 0) {
        load_last(x, n, rest, v);
        sum_v += v;
      }
      store_lanes(sum_v, lanes);
      about = sum_lanes(lanes) / C(n);
      sum_v = V{};
    }
    for (int64_t i = 0; i < whole; i += kWidth) {
      load_lanes(x + i, v);
      v -= about;
      sum_v += v;
      squares_v += v * v;
    }
    if (rest > 0) {
      load_last(x, n, rest, v);
      v -= about;
      keep_last(rest, v);
      sum_v += v;
      squares_v += v * v;
    }
    store_lanes(sum_v, lanes);
    const C total = sum_lanes(lanes);
    store_lanes(squares_v, lanes);
    return Sums{about, total, sum_lanes(lanes)};
  });
  center = found.center;
  sum = double(found.sum);
  squares = double(found.squares);
}

}  // namespace

void Moments::join(const Moments& o) {
  if (o.count == 0) return;
  if (count == 0) {
    *this = o;
    return;
  }
  const double d = o.mean - mean, n = double(count + o.count);
  mean += d * (double(o.count) / n);
  squares += o.squares + d * d * (double(count) * double(o.count) / n);
  count += o.count;
}

template <class C, class T>
void sums_about(const T* x, C center, int64_t n, double& sum, double& squares) {
  add_up<false>(x, center, n, sum, squares);
}

template <class C, class T>
Moments moments_of(const T* x, int64_t n) {
  C center = 0;
  double sum, squares;
  add_up<true>(x, center, n, sum, squares);
  return {double(center) + sum / double(n), std::max(0.0, squares - sum * sum / double(n)), n};
}

#define HS_MOMENTS(C, T)                                                  \
  template void sums_about<C, T>(const T*, C, int64_t, double&, double&); \
  template Moments moments_of<C, T>(const T*, int64_t);
HS_MOMENTS(float, float)
HS_MOMENTS(float, bf16)
HS_MOMENTS(double, double)
#undef HS_MOMENTS

}  // namespace halfstep::cpu
