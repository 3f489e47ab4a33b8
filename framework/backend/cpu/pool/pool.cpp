// SPDX-License-Identifier: Apache-2.0
// Maximum pooling. Each plane, in... -> out..., is pooled alone; W(o) is the window of output o.
//   forward   out[o] = max of x[i] over i in W(o), index[o] = the first such i; the first NaN wins
//   backward  dx[i] = sum of g[o] over the outputs o with index[o] = i
// An output row is computed at once, tap by tap for all of its windows.
#include "framework/backend/cpu/pool/pool.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/reduce/reduce_kernels.h"

namespace halfstep::cpu {
namespace {

using namespace pooling;

// Takes x[i * stride] if it is larger than best[i] or the first NaN; its index is first + i * stride.
template <class C, class I, int Stride, bool Indices>
HS_CLONES void take_larger(const C* x, int64_t stride, I first, C* best, I* where, int64_t n) {
  const int64_t step = Stride ? Stride : stride;
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const C v = x[i * step], old = best[i];
    const bool takes = (v > old) | ((v != v) & (old == old));
    best[i] = takes ? v : old;
    if constexpr (Indices) where[i] = takes ? I(first + I(i) * I(step)) : where[i];
  }
}
template <class C, class I, bool Indices>
void take_larger(const C* x, int64_t stride, I first, C* best, I* where, int64_t n) {
  if (stride == 1) return take_larger<C, I, 1, Indices>(x, 1, first, best, where, n);
  if (stride == 2) return take_larger<C, I, 2, Indices>(x, 2, first, best, where, n);
  take_larger<C, I, 0, Indices>(x, stride, first, best, where, n);
}

// Takes the maximum of x[0, n) and the best so far, for the windows of adaptive pooling.
template <class C, class I>
void take_largest(const C* x, int64_t n, I first, C& best, I& where) {
  const C top = C(reduce_row<C>(Reduce::max, x, n));
  if (!(top > best || (top != top && best == best))) return;
  int64_t i = 0;
  while (!(x[i] == top || (top != top && x[i] != x[i]))) ++i;
  best = top;
  where = first + I(i);
}

// Like take_larger, for the channels of the pixel at index `here`.
template <class C, class I, bool Indices>
HS_CLONES void take_larger_lanes(const C* x, I here, C* best, I* where, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const C v = x[i], old = best[i];
    const bool takes = (v > old) | ((v != v) & (old == old));
    best[i] = takes ? v : old;
    if constexpr (Indices) where[i] = takes ? here : where[i];
  }
}
template <class C, class I, bool Indices>
void max_row_lanes(const Pooling& p, Rows<C>& rows, const I* starts, int64_t plane, int64_t oz, int64_t oy, C* best, I* where) {
  const Axis &z = p.z, &y = p.y, &x = p.x;
  const int64_t corner = (std::min(z.begin(oz), z.in - 1) * y.in + std::min(y.begin(oy), y.in - 1)) * x.in;
  std::fill_n(best, x.out * p.lanes, -std::numeric_limits<C>::infinity());
  if constexpr (Indices)
    for (int64_t o = 0; o < x.out; ++o) std::fill_n(where + o * p.lanes, p.lanes, starts[o] + I(corner));
  for (int64_t iz = z.begin(oz); iz < z.end(oz); iz += z.dilation) {
    for (int64_t iy = y.begin(oy); iy < y.end(oy); iy += y.dilation) {
      const C* const row = rows.row(plane, iz, iy);
      for (int64_t o = 0; o < x.out; ++o)
        for (int64_t ix = x.begin(o); ix < x.end(o); ix += x.dilation)
          take_larger_lanes<C, I, Indices>(row + ix * p.lanes, I((iz * y.in + iy) * x.in + ix), best + o * p.lanes,
                                           where + o * p.lanes, p.lanes);
    }
  }
}

// A tap along a row: it is inside for the outputs from lo to hi, starting at the input `from`.
struct Tap {
  int64_t lo, hi, from;
};
// Returns the taps that are inside for some output. They are the same for all rows, and finding them takes divisions.
std::vector<Tap> taps_of(const Axis& x) {
  std::vector<Tap> out;
  if (x.adaptive) return out;
  const int64_t least = std::max<int64_t>(0, (x.padding - x.stride * (x.out - 1)) / x.dilation);
  const int64_t most = std::min(x.size, (x.in - 1 + x.padding) / x.dilation + 1);
  for (int64_t k = least; k < most; ++k) {
    const auto [lo, hi] = x.outputs_of_tap(k);
    if (lo < hi) out.push_back({lo, hi, x.first(lo) + k * x.dilation});
  }
  return out;
}

template <class C, class I, bool Indices>
void max_row(const Pooling& p, const std::vector<Tap>& taps, Rows<C>& rows, const I* starts, int64_t plane, int64_t oz, int64_t oy,
             C* best, I* where) {
  if (p.lanes > 1) return max_row_lanes<C, I, Indices>(p, rows, starts, plane, oz, oy, best, where);
  const Axis &z = p.z, &y = p.y, &x = p.x;
  // Starts with the first tap, which stays if nothing is larger than -inf.
  const int64_t corner = (std::min(z.begin(oz), z.in - 1) * y.in + std::min(y.begin(oy), y.in - 1)) * x.in;
  std::fill_n(best, x.out, -std::numeric_limits<C>::infinity());
  if (Indices || x.adaptive)
    for (int64_t o = 0; o < x.out; ++o) where[o] = starts[o] + I(corner);
  for (int64_t iz = z.begin(oz); iz < z.end(oz); iz += z.dilation) {
    for (int64_t iy = y.begin(oy); iy < y.end(oy); iy += y.dilation) {
      const C* const row = rows.row(plane, iz, iy);
      const I base = I((iz * y.in + iy) * x.in);
      if (x.adaptive) {
        for (int64_t o = 0; o < x.out; ++o)
          take_largest(row + x.begin(o), x.end(o) - x.begin(o), I(base + I(x.begin(o))), best[o], where[o]);
        continue;
      }
      for (const auto& [lo, hi, from] : taps)
        take_larger<C, I, Indices>(row + from, x.stride, I(base + I(from)), best + lo, where + lo, hi - lo);
    }
  }
}

template <class C, class I>
void max_pool_in(const TensorView& x, const Pooling& p, const TensorView& out, const TensorView& indices) {
  const int64_t width = p.x.out * p.lanes;
  const bool direct = out.dtype == dtype_of<C>;
  const std::vector<Tap> taps = taps_of(p.x);
  const std::vector<I> starts = starts_of<I>(p.x);
  parallel_for(p.rows(), 1, out.numel() * 4, [&](int64_t begin, int64_t end) {
    Rows<C> rows(x, p);
    std::vector<C> values(direct ? 0 : size_t(width));
    std::vector<I> where(static_cast<size_t>(width));
    for (int64_t r = begin; r < end; ++r) {
      const int64_t oy = r % p.y.out, oz = r / p.y.out % p.z.out, plane = r / p.y.out / p.z.out;
      C* const best = direct ? out.as<C>() + r * width : values.data();
      const auto take = [&](auto with) {
        constexpr bool kIndices = decltype(with)::value;
        max_row<C, I, kIndices>(p, taps, rows, starts.data(), plane, oz, oy, best, where.data());
      };
      indices ? take(std::true_type{}) : take(std::false_type{});
      if (indices) put_positions(where.data(), width, indices, r * width);
      if (!direct) store<C>(out.dtype, best, at(out, r * width), 1, width);
    }
  });
}

}  // namespace

void max_pool(const TensorView& x, const PoolArgs& args, const TensorView& out, const TensorView& indices) {
  if (out.numel() == 0) return;
  const Pooling p(x.shape, out.shape, args, x.format());
  if (max_pool_squares(x, p, out, indices) || max_pool_overlapping(x, p, out, indices)) return;
  const int64_t plane = x.numel() / (x.shape[0] * x.shape[1]);
  // Indices of large planes need 64 bits, which only the wide kernel has.
  if (x.dtype == DType::f64 || plane > std::numeric_limits<int32_t>::max())
    max_pool_in<double, int64_t>(x, p, out, indices);
  else
    max_pool_in<float, int32_t>(x, p, out, indices);
}

namespace {

// Copies gradients, if no two windows share an input. Stores -0 as 0, as adding it to 0 would.
template <class T, class P>
void put_gradients(const TensorView& grad, const TensorView& indices, const TensorView& out) {
  const int64_t planes = out.shape[0] * out.shape[1], in = out.numel() / planes, n = grad.numel() / planes;
  constexpr T kMinusZero = T(T(1) << (8 * sizeof(T) - 1));
  parallel_for(planes, 1, out.numel() + grad.numel(), [&](int64_t begin, int64_t end) {
    std::memset(out.as<T>() + begin * in, 0, size_t((end - begin) * in) * sizeof(T));
    for (int64_t plane = begin; plane < end; ++plane) {
      T* const dx = out.as<T>() + plane * in;
      const T* const g = grad.as<const T>() + plane * n;
      const P* const where = indices.as<const P>() + plane * n;
      for (int64_t i = 0; i < n; ++i) dx[where[i]] = g[i] == kMinusZero ? T(0) : g[i];
    }
  });
}

bool windows_are_apart(const PoolArgs& args) {
  const Window& w = args.window;
  for (size_t d = 0; d < size_t(w.dims); ++d)
    if (w.stride[d] < (w.size[d] - 1) * w.dilation[d] + 1) return false;
  return !args.adaptive;
}

template <class P>
void max_pool_backward_from(const TensorView& grad, const TensorView& indices, const PoolArgs& args, const TensorView& out) {
  if (windows_are_apart(args) && grad.dtype == out.dtype && out.format() != MemoryFormat::channels_last) {
    if (size_of(out.dtype) == 2) return put_gradients<uint16_t, P>(grad, indices, out);
    if (out.dtype == DType::f32) return put_gradients<uint32_t, P>(grad, indices, out);
    return put_gradients<uint64_t, P>(grad, indices, out);
  }
  with_float_type(wider(compute_of(grad.dtype), compute_of(out.dtype)), [&](auto tag) {
    using C = decltype(tag);
    const int64_t lanes = out.format() == MemoryFormat::channels_last ? out.shape[1] : 1,
                  planes = out.shape[0] * out.shape[1] / lanes, n = grad.numel() / planes;
    for_planes<C>(out, planes, [&](int64_t plane, C* dx) {
      C block[kBlock];
      for (int64_t i = 0; i < n; i += kBlock) {
        const int64_t part = std::min(kBlock, n - i);
        load<C>(grad.dtype, at(grad, plane * n + i), 1, block, part);
        const P* const where = indices.as<const P>() + plane * n + i;
        if (lanes == 1) {
          for (int64_t k = 0; k < part; ++k) dx[where[k]] += block[k];
          continue;
        }
        for (int64_t k = 0, lane = i % lanes; k < part; ++k) {
          dx[where[k] * lanes + lane] += block[k];
          if (++lane == lanes) lane = 0;
        }
      }
    });
  });
}

}  // namespace

void max_pool_backward(const TensorView& grad, const TensorView& indices, const PoolArgs& args, const TensorView& out) {
  if (out.numel() == 0) return;
  with_index_type(indices, [&]<class P>(P) { max_pool_backward_from<P>(grad, indices, args, out); });
}

}  // namespace halfstep::cpu
