#include "framework/backend/cpu/moments.h"

#include <algorithm>
#include <cstring>

#include "framework/backend/cpu/simd.h"

namespace halfstep::cpu {
namespace {

// The last lanes of a row, `rest` in those that are missing.
template <class C>
[[gnu::always_inline]] inline void load_last(const C* x, int64_t n, C rest, C* lanes) {
  for (int k = 0; k < 64 / int(sizeof(C)); ++k) lanes[k] = k < n ? x[k] : rest;
}

// sum (x - center) and sum (x - center)^2; `find`: about their mean, which goes to center.
template <bool find, class C>
HS_CLONES void add_up(const C* x, C& center, int64_t n, double& sum, double& squares) {
  constexpr int kWidth = 64 / int(sizeof(C));
  typedef C V __attribute__((vector_size(64)));
  C lanes[kWidth];
  V s = {}, q = {}, v;
  const int64_t whole = n / kWidth * kWidth;
  if constexpr (find) {
    for (int64_t i = 0; i < whole; i += kWidth) {
      std::memcpy(&v, x + i, sizeof v);
      s += v;
    }
    load_last(x + whole, n - whole, C(0), lanes);
    std::memcpy(&v, lanes, sizeof v);
    s += v;
    std::memcpy(lanes, &s, sizeof s);
    center = sum_lanes(lanes) / C(n);
    s = V{};
  }
  for (int64_t i = 0; i < whole; i += kWidth) {
    std::memcpy(&v, x + i, sizeof v);
    v -= center;
    s += v;
    q += v * v;
  }
  if (whole < n) {
    load_last(x + whole, n - whole, center, lanes);
    std::memcpy(&v, lanes, sizeof v);
    v -= center;
    s += v;
    q += v * v;
  }
  std::memcpy(lanes, &s, sizeof s);
  sum = double(sum_lanes(lanes));
  std::memcpy(lanes, &q, sizeof q);
  squares = double(sum_lanes(lanes));
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

template <class C>
void sums_about(const C* x, C center, int64_t n, double& sum, double& squares) {
  add_up<false>(x, center, n, sum, squares);
}

template <class C>
Moments moments_of(const C* x, int64_t n) {
  C center;
  double sum, squares;
  add_up<true>(x, center, n, sum, squares);
  return {double(center) + sum / double(n), std::max(0.0, squares - sum * sum / double(n)), n};
}

template void sums_about<float>(const float*, float, int64_t, double&, double&);
template void sums_about<double>(const double*, double, int64_t, double&, double&);
template Moments moments_of<float>(const float*, int64_t);
template Moments moments_of<double>(const double*, int64_t);

}  // namespace halfstep::cpu
