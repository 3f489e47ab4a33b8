// SPDX-License-Identifier: Apache-2.0
// Softmax of rows [R, n]. m is the row's maximum, so that exp does not overflow.
//   softmax      y = exp(x - m) / sum exp(x - m);  dx = y (g - sum(g y))
//   log_softmax  y = x - m - log(sum exp(x - m));  dx = g - exp(y) sum(g)
#include <algorithm>
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/reduce/rows.h"
#include "framework/math/scalar.h"

namespace halfstep::cpu {
namespace {

// Computes out = factor x, as C or directly as bfloat16.
template <class C, class Out>
HS_CLONES void scale_row(const C* x, C factor, Out* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<Out>(x[i] * factor);
}
template <class C, class Out>
HS_CLONES void subtract_row(const C* x, C shift, C rest, Out* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<Out>((x[i] - shift) - rest);
}
template <class C>
HS_CLONES void multiply_rows(const C* a, const C* b, C* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}
template <class C, class Out>
HS_CLONES void soft_gradient(const C* g, const C* y, C dot, Out* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<Out>(y[i] * (g[i] - dot));
}
template <class C, class Out>
HS_CLONES void log_gradient(const C* g, const C* y, C total, Out* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<Out>(g[i] - m::exp(y[i]) * total);
}

template <class C, class Out>
void forward_row(const C* x, Out* out, C* work, int64_t n, bool log) {
  const C top = C(reduce_row<C>(Reduce::max, x, n));
  exp_row(x, top, work, n);
  const double total = reduce_row<C>(Reduce::sum, work, n);
  if (log)
    subtract_row(x, top, C(std::log(total)), out, n);
  else
    scale_row(work, C(1 / total), out, n);
}

template <class C, class Out>
void backward_row(const C* g, const C* y, Out* out, C* work, int64_t n, bool log) {
  if (log) return log_gradient(g, y, C(reduce_row<C>(Reduce::sum, g, n)), out, n);
  multiply_rows(g, y, work, n);
  soft_gradient(g, y, C(reduce_row<C>(Reduce::sum, work, n)), out, n);
}

// ---- rows side by side: element i of each is a row of the tile, `width` wide

template <class C>
struct Tile {
  C* data;
  int64_t step;  // distance between its rows
  C* row(int64_t i) const { return data + i * step; }
};

template <class C>
HS_CLONES void tile_maxima(const C* x, C* top, int64_t width) {
  HS_INDEPENDENT
  for (int64_t k = 0; k < width; ++k) top[k] = x[k] > top[k] || x[k] != x[k] ? x[k] : top[k];
}
// Computes out = e^(x - shift), total += out.
template <class C>
HS_CLONES void tile_exps(const C* x, const C* shift, C* out, double* total, int64_t width) {
  HS_INDEPENDENT
  for (int64_t k = 0; k < width; ++k) out[k] = m::exp(C(x[k] - shift[k]));
  HS_INDEPENDENT
  for (int64_t k = 0; k < width; ++k) total[k] += double(out[k]);
}
template <class C>
HS_CLONES void tile_scale(C* x, const C* factor, int64_t width) {
  HS_INDEPENDENT
  for (int64_t k = 0; k < width; ++k) x[k] *= factor[k];
}
template <class C>
HS_CLONES void tile_minus(const C* x, const C* shift, const C* rest, C* out, int64_t width) {
  HS_INDEPENDENT
  for (int64_t k = 0; k < width; ++k) out[k] = (x[k] - shift[k]) - rest[k];
}
template <class C>
HS_CLONES void tile_sum(const C* g, const C* y, double* total, int64_t width, bool log) {
  if (log) {
    HS_INDEPENDENT
    for (int64_t k = 0; k < width; ++k) total[k] += double(g[k]);
  } else {
    HS_INDEPENDENT
    for (int64_t k = 0; k < width; ++k) total[k] += double(g[k] * y[k]);
  }
}
template <class C>
HS_CLONES void tile_gradient(const C* g, const C* y, const C* total, C* out, int64_t width, bool log) {
  if (log) {
    HS_INDEPENDENT
    for (int64_t k = 0; k < width; ++k) out[k] = g[k] - m::exp(y[k]) * total[k];
  } else {
    HS_INDEPENDENT
    for (int64_t k = 0; k < width; ++k) out[k] = y[k] * (g[k] - total[k]);
  }
}

constexpr int64_t kTileWidth = 256;  // most rows side by side

template <class C>
void forward_tile(Tile<const C> x, Tile<C> out, int64_t n, int64_t width, bool log) {
  C top[kTileWidth], rest[kTileWidth];
  double total[kTileWidth] = {};
  std::copy_n(x.data, width, top);
  for (int64_t i = 1; i < n; ++i) tile_maxima(x.row(i), top, width);
  for (int64_t i = 0; i < n; ++i) tile_exps(x.row(i), top, out.row(i), total, width);
  for (int64_t k = 0; k < width; ++k) rest[k] = C(log ? std::log(total[k]) : 1 / total[k]);
  for (int64_t i = 0; i < n; ++i) log ? tile_minus(x.row(i), top, rest, out.row(i), width) : tile_scale(out.row(i), rest, width);
}
template <class C>
void backward_tile(Tile<const C> g, Tile<const C> y, Tile<C> out, int64_t n, int64_t width, bool log) {
  C rest[kTileWidth];
  double total[kTileWidth] = {};
  for (int64_t i = 0; i < n; ++i) tile_sum(g.row(i), y.row(i), total, width, log);
  for (int64_t k = 0; k < width; ++k) rest[k] = C(total[k]);
  for (int64_t i = 0; i < n; ++i) tile_gradient(g.row(i), y.row(i), rest, out.row(i), width, log);
}

// Calls f(in..., out, n, width) on tiles; returns false if the rows along `dim` are not side by side.
template <class C, class F>
bool for_tiles(std::initializer_list<const TensorView*> inputs, const TensorView& out, int dim, const Space& rows, const F& f) {
  constexpr int64_t kLongest = 1 << 14, kNarrowest = 16;  // rows, and number of them side by side
  const int last = rows.rank - 1;
  const int64_t n = row_length(out, dim), inner = rows.shape[last];
  const int operands = int(inputs.size()) + 1;
  bool fits = inner >= kNarrowest && n <= kLongest && row_stride(out, dim) != 1;
  for (int k = 0; k < operands; ++k) fits = fits && rows.strides[k][last] == 1;
  if (!fits) return false;
  const int64_t most = std::clamp<int64_t>(8 * kBlock / n, kNarrowest, kTileWidth), tiles = (inner + most - 1) / most;
  parallel_for(rows.numel / inner * tiles, 1, rows.numel * n * 8, [&](int64_t begin, int64_t end) {
    std::vector<C> memory(size_t(operands * n * most));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task / tiles * inner + task % tiles * most, width = std::min(most, inner - task % tiles * most);
      // Returns the memory of a tensor's tile: in place, or the buffer.
      const auto tile_of = [&](int k, const TensorView& v) {
        if (v.dtype == dtype_of<C>) return Tile<C>{v.as<C>() + Cursor(rows, k, first).offset(), row_stride(v, dim)};
        return Tile<C>{memory.data() + k * n * most, width};
      };
      const auto copied = [&](int k, const TensorView& v, const auto& transfer) {
        if (v.dtype == dtype_of<C>) return;
        const int64_t from = Cursor(rows, k, first).offset(), step = row_stride(v, dim);
        for (int64_t i = 0; i < n; ++i) transfer(at(v, from + i * step), memory.data() + k * n * most + i * width);
      };
      Tile<const C> source[2] = {};
      for (int k = 1; k < operands; ++k) {
        const TensorView& v = *inputs.begin()[k - 1];
        copied(k, v, [&](const char* from, C* to) { load<C>(v.dtype, from, 1, to, width); });
        const Tile<C> tile = tile_of(k, v);
        source[k - 1] = {tile.data, tile.step};
      }
      f(source, tile_of(0, out), n, width);
      copied(0, out, [&](char* to, const C* from) { store<C>(out.dtype, from, to, 1, width); });
    }
  });
  return true;
}

// Calls f(in..., out, work, n) for every row along `dim`, or tile(in..., out, n, width) for many rows side by side.
template <class C, class F, class OnTile>
void for_rows(std::initializer_list<const TensorView*> inputs, const TensorView& out, int dim, const F& f, const OnTile& tile) {
  const TensorView* const* in = inputs.begin();
  const int count = int(inputs.size());
  const Space rows(without(out.shape, dim), {&out.strides, &in[0]->strides, &in[count - 1]->strides});
  const int64_t n = row_length(out, dim);
  if (rows.numel == 0 || n == 0 || for_tiles<C>(inputs, out, dim, rows, tile)) return;
  const int64_t step = row_stride(out, dim);
  const bool direct = out.dtype == dtype_of<C> && step == 1;
  parallel_for(rows.numel, 1, rows.numel * n * 8, [&](int64_t begin, int64_t end) {
    std::vector<C> memory(size_t(4 * n));
    C* const buffer = memory.data();
    for (int64_t r = begin; r < end; ++r) {
      const C* source[2];
      for (int k = 0; k < count; ++k) {
        source[k] = read_row<C>(*in[k], Cursor(rows, k + 1, r).offset(), row_stride(*in[k], dim), n, buffer + (k + 2) * n);
      }
      const int64_t to = Cursor(rows, 0, r).offset();
      if constexpr (std::is_same_v<C, float>) {
        if (out.dtype == DType::bf16 && step == 1) {
          f(source, out.as<bf16>() + to, buffer + n, n);
          continue;
        }
      }
      C* target = direct ? out.as<C>() + to : buffer;
      f(source, target, buffer + n, n);
      if (!direct) store<C>(out.dtype, target, at(out, to), step, n);
    }
  });
}

}  // namespace

void softmax(const TensorView& x, const TensorView& out, int dim, bool log) {
  with_compute(wider(compute_of(x.dtype), compute_of(out.dtype)), [&](auto tag) {
    using C = decltype(tag);
    if constexpr (!std::is_same_v<C, int64_t>) {
      for_rows<C>(
          {&x}, out, dim, [log](const C* const* in, auto* to, C* work, int64_t n) { forward_row(in[0], to, work, n, log); },
          [log](const Tile<const C>* in, Tile<C> to, int64_t n, int64_t width) { forward_tile(in[0], to, n, width, log); });
    }
  });
}

void softmax_backward(const TensorView& grad, const TensorView& y, const TensorView& out, int dim, bool log) {
  with_compute(wider(wider(compute_of(grad.dtype), compute_of(y.dtype)), compute_of(out.dtype)), [&](auto tag) {
    using C = decltype(tag);
    if constexpr (!std::is_same_v<C, int64_t>) {
      for_rows<C>(
          {&grad, &y}, out, dim,
          [log](const C* const* in, auto* to, C* work, int64_t n) { backward_row(in[0], in[1], to, work, n, log); },
          [log](const Tile<const C>* in, Tile<C> to, int64_t n, int64_t width) { backward_tile(in[0], in[1], to, n, width, log); });
    }
  });
}

}  // namespace halfstep::cpu
