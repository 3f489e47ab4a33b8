// SPDX-License-Identifier: Apache-2.0
// Average pooling. Each plane is pooled alone; W(o) is the window of output o, and n(o) its divisor.
//   forward   out[o] = sum of x[i] over i in W(o) / n(o)
//   backward  dx[i] = sum of g[o] / n(o) over the outputs o whose window covers i
// An output row is computed at once: first the sum of the rows that its windows cover, then sums along it.
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/pool/pool.h"
#include "framework/backend/cpu/reduce/reduce_kernels.h"

namespace halfstep::cpu {
namespace {

using namespace pooling;

template <class C, int Stride>
HS_CLONES void add_strided(const C* x, int64_t stride, C* sum, int64_t n) {
  const int64_t step = Stride ? Stride : stride;
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i * step];
}
template <class C, int Stride>
HS_CLONES void spread_strided(const C* g, int64_t stride, C* out, int64_t n) {
  const int64_t step = Stride ? Stride : stride;
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i * step] += g[i];
}
template <class C>
HS_CLONES void add_row(const C* x, C* sum, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}
template <class C>
HS_CLONES void divide(C* x, const C* by, C also_by, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] /= by[i] * also_by;
}

// Adds up the windows of an output row, from the sums of the columns.
template <class C>
void sum_along(const Axis& x, int64_t lanes, const C* columns, C* out) {
  if (lanes > 1) {
    std::fill_n(out, x.out * lanes, C(0));
    for (int64_t o = 0; o < x.out; ++o)
      for (int64_t i = x.begin(o); i < x.end(o); ++i) add_row(columns + i * lanes, out + o * lanes, lanes);
    return;
  }
  if (x.adaptive || x.size > 4 * x.out) {
    for (int64_t o = 0; o < x.out; ++o) out[o] = C(reduce_row<C>(Reduce::sum, columns + x.begin(o), x.end(o) - x.begin(o)));
    return;
  }
  std::fill_n(out, x.out, C(0));
  for (int64_t k = 0; k < x.size; ++k) {
    const auto [lo, hi] = x.outputs_of_tap(k);
    const C* const from = columns + x.first(lo) + k;
    if (x.stride == 1)
      add_strided<C, 1>(from, 1, out + lo, hi - lo);
    else if (x.stride == 2)
      add_strided<C, 2>(from, 2, out + lo, hi - lo);
    else
      add_strided<C, 0>(from, x.stride, out + lo, hi - lo);
  }
}
// Adds each window's value to all elements that it covers; the transpose of sum_along. `out` begins with zeros.
template <class C>
void spread_along(const Axis& x, int64_t lanes, const C* g, C* out) {
  if (lanes > 1) {
    for (int64_t o = 0; o < x.out; ++o)
      for (int64_t i = x.begin(o); i < x.end(o); ++i) add_row(g + o * lanes, out + i * lanes, lanes);
    return;
  }
  if (x.adaptive || x.size > 4 * x.out) {
    for (int64_t o = 0; o < x.out; ++o)
      for (int64_t i = x.begin(o); i < x.end(o); ++i) out[i] += g[o];
    return;
  }
  for (int64_t k = 0; k < x.size; ++k) {
    const auto [lo, hi] = x.outputs_of_tap(k);
    C* const to = out + x.first(lo) + k;
    if (x.stride == 1)
      spread_strided<C, 1>(g + lo, 1, to, hi - lo);
    else if (x.stride == 2)
      spread_strided<C, 2>(g + lo, 2, to, hi - lo);
    else
      spread_strided<C, 0>(g + lo, x.stride, to, hi - lo);
  }
}

// Computes out[p] = sum of x[p n, (p + 1) n) for small n, in lanes.
template <class C>
HS_CLONES void sum_planes(const C* x, int64_t planes, int64_t n, C* out) {
  constexpr int64_t kLanes = 16;
  for (int64_t p = 0; p < planes; ++p, x += n) {
    C lane[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int64_t j = 0; j < kLanes; ++j) lane[j] += x[i + j];
    for (int64_t j = 0; i + j < n; ++j) lane[j] += x[i + j];
    for (int64_t half = kLanes / 2; half > 0; half /= 2)
      for (int64_t j = 0; j < half; ++j) lane[j] += lane[j + half];
    out[p] = lane[0];
  }
}

// The divisors of the windows of a row.
template <class C>
struct Divisors {
  std::vector<C> along;

  Divisors(const Pooling& p, const PoolArgs& args) : pooling_(p), args_(args) {
    for (int64_t o = 0; o < p.x.out; ++o)
      along.insert(along.end(), size_t(p.lanes), args.divisor ? C(1) : C(p.x.counted_elements(o, args.count_include_pad)));
  }
  C row(int64_t oz, int64_t oy) const {
    if (args_.divisor) return C(args_.divisor);
    return C(pooling_.z.counted_elements(oz, args_.count_include_pad) * pooling_.y.counted_elements(oy, args_.count_include_pad));
  }

 private:
  const Pooling& pooling_;
  const PoolArgs& args_;
};

// Returns the sum of n dense elements.
template <class C>
double dense_sum(const TensorView& x, int64_t from, int64_t n) {
  if (x.dtype == dtype_of<C>) return reduce_row<C>(Reduce::sum, x.as<const C>() + from, n);
  C block[kBlock];
  double sum = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t part = std::min(kBlock, n - i);
    load<C>(x.dtype, at(x, from + i), 1, block, part);
    sum += reduce_row<C>(Reduce::sum, block, part);
  }
  return sum;
}

// Averages whole planes of few elements, as many planes at a time as fit into a buffer.
template <class C>
void avg_planes(const TensorView& x, int64_t planes, int64_t n, C divisor, const TensorView& out) {
  const int64_t together = kBlock / n;
  parallel_for(planes, together, x.numel(), [&](int64_t begin, int64_t end) {
    C block[kBlock], sums[kBlock];
    for (int64_t p = begin; p < end; p += together) {
      const int64_t count = std::min(together, end - p);
      const bool direct = x.dtype == dtype_of<C>;
      if (!direct) load<C>(x.dtype, at(x, p * n), 1, block, count * n);
      sum_planes(direct ? x.as<const C>() + p * n : block, count, n, sums);
      for (int64_t i = 0; i < count; ++i) sums[i] /= divisor;
      store<C>(out.dtype, sums, at(out, p), 1, count);
    }
  });
}

// Sums the windows of an output row; the caller divides.
template <class C>
void sum_row(const Pooling& p, Rows<C>& rows, const TensorView& source, int64_t plane, int64_t oz, int64_t oy, C* columns, C* out) {
  const Axis &z = p.z, &y = p.y, &x = p.x;
  const int64_t y0 = y.begin(oy), y1 = y.end(oy);
  if (p.lanes == 1 && x.out == 1 && x.begin(0) == 0 && x.end(0) == x.in) {  // whole rows: one run of memory
    double sum = 0;
    for (int64_t iz = z.begin(oz); iz < z.end(oz); ++iz)
      if (y0 < y1) sum += dense_sum<C>(source, ((plane * z.in + iz) * y.in + y0) * x.in, (y1 - y0) * x.in);
    out[0] = C(sum);
    return;
  }
  const int64_t width = x.in * p.lanes;
  std::fill_n(columns, width, C(0));
  for (int64_t iz = z.begin(oz); iz < z.end(oz); ++iz)
    for (int64_t iy = y0; iy < y1; ++iy) reduce_columns(Reduce::sum, columns, rows.row(plane, iz, iy), width);
  sum_along(x, p.lanes, columns, out);
}

// Computes the gradient of the means of whole planes: g[p] / divisor for each element of plane p.
template <class C>
void spread_planes(const TensorView& grad, int64_t planes, int64_t n, C divisor, const TensorView& out) {
  parallel_for(planes, 1, out.numel(), [&](int64_t begin, int64_t end) {
    C block[kBlock];
    for (int64_t p = begin; p < end; ++p) {
      const C value = load_one<C>(grad.dtype, at(grad, p)) / divisor;
      if (out.dtype == dtype_of<C>) {
        std::fill_n(out.as<C>() + p * n, n, value);
        continue;
      }
      std::fill_n(block, std::min(n, kBlock), value);
      for (int64_t i = 0; i < n; i += kBlock) store<C>(out.dtype, block, at(out, p * n + i), 1, std::min(kBlock, n - i));
    }
  });
}

}  // namespace

void avg_pool(const TensorView& x, const PoolArgs& args, const TensorView& out) {
  if (out.numel() == 0) return;
  with_float_type(wider(compute_of(x.dtype), compute_of(out.dtype)), [&](auto tag) {
    using C = decltype(tag);
    const Pooling p(x.shape, out.shape, args, x.format());
    const Divisors<C> divisors(p, args);
    const int64_t width = p.x.out * p.lanes;
    if (p.lanes == 1 && p.covers_planes() && p.in_plane() <= kBlock)
      return avg_planes<C>(x, p.planes, p.in_plane(), divisors.along[0] * divisors.row(0, 0), out);
    parallel_for(p.rows(), 1, std::max(x.numel(), out.numel()), [&](int64_t begin, int64_t end) {
      Rows<C> rows(x, p);
      std::vector<C> columns(static_cast<size_t>(p.x.in * p.lanes)), sums(static_cast<size_t>(width));
      for (int64_t r = begin; r < end; ++r) {
        const int64_t oy = r % p.y.out, oz = r / p.y.out % p.z.out, plane = r / p.y.out / p.z.out;
        sum_row<C>(p, rows, x, plane, oz, oy, columns.data(), sums.data());
        divide(sums.data(), divisors.along.data(), divisors.row(oz, oy), width);
        store<C>(out.dtype, sums.data(), at(out, r * width), 1, width);
      }
    });
  });
}

void avg_pool_backward(const TensorView& grad, const PoolArgs& args, const TensorView& out) {
  if (out.numel() == 0) return;
  with_float_type(wider(compute_of(grad.dtype), compute_of(out.dtype)), [&](auto tag) {
    using C = decltype(tag);
    const Pooling p(out.shape, grad.shape, args, out.format());
    const Divisors<C> divisors(p, args);
    if (p.lanes == 1 && p.covers_planes())
      return spread_planes<C>(grad, p.planes, p.in_plane(), divisors.along[0] * divisors.row(0, 0), out);
    for_planes<C>(out, p.planes, [&](int64_t plane, C* dx) {
      const int64_t from = p.x.out * p.lanes, to = p.x.in * p.lanes;
      std::vector<C> g(static_cast<size_t>(from)), spread(static_cast<size_t>(to));
      for (int64_t oz = 0; oz < p.z.out; ++oz) {
        for (int64_t oy = 0; oy < p.y.out; ++oy) {
          const int64_t r = (plane * p.z.out + oz) * p.y.out + oy;
          load<C>(grad.dtype, at(grad, r * from), 1, g.data(), from);
          divide(g.data(), divisors.along.data(), divisors.row(oz, oy), from);
          std::fill(spread.begin(), spread.end(), C(0));
          spread_along(p.x, p.lanes, g.data(), spread.data());
          for (int64_t iz = p.z.begin(oz); iz < p.z.end(oz); ++iz)
            for (int64_t iy = p.y.begin(oy); iy < p.y.end(oy); ++iy)
              reduce_columns(Reduce::sum, dx + (iz * p.y.in + iy) * to, spread.data(), to);
        }
      }
    });
  });
}

}  // namespace halfstep::cpu
