// SPDX-License-Identifier: Apache-2.0
// Samples x [N, C, in...] at the P points of each sample that `grid` [N, P, dims] lists. Each point has taps t, with positions i_t
// in x and weights w_t that depend on its coordinates u; taps outside count 0.
//   forward   out[n, c, p] = sum over t of w_t x[n, c, i_t]
//   backward  dx[n, c, i_t] += w_t g[n, c, p];  dgrid[n, p, d] = sum over c, t of g[n, c, p] x[n, c, i_t] dw_t / du_d
// The positions and weights of a block of points are computed once for all channels.
#include <algorithm>
#include <vector>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/grid_taps.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kPoints = 256;   // points in a block
constexpr int64_t kChannels = 16;  // channels that share a block's weights when gradients are scattered

struct GridSizes {
  int dims;
  int64_t batch, channels, points, plane;
  int64_t in[3] = {1, 1, 1};  // x, y, z

  GridSizes(const TensorView& x, const TensorView& grid)
      : dims(x.shape.size() - 2), batch(x.shape[0]), channels(x.shape[1]), points(1), plane(1) {
    for (int d = 0; d < dims; ++d) {
      in[dims - 1 - d] = x.shape[2 + d];
      plane *= x.shape[2 + d];
      points *= grid.shape[1 + d];
    }
  }
  int64_t blocks() const { return (points + kPoints - 1) / kPoints; }
};

// The taps of a block of points: tap t of point p is at t * kPoints + p. Taps outside have weight 0.
template <class C>
struct Block {
  int taps = 0;
  int64_t count = 0;
  std::vector<int32_t> index;
  std::vector<C> weight, slope[3];  // slope: with respect to x, y, z
  std::vector<C> coordinates;
};

// The taps of a block along one dimension.
template <class C, int Taps>
struct AxisBlock {
  int32_t index[Taps][kPoints];
  C weight[Taps][kPoints], slope[Taps][kPoints];
};

template <class C, int Taps>
[[gnu::always_inline]] inline void fill_axis(const SampleArgs& a, const C* coordinates, int64_t step, int64_t size, int64_t n,
                                             AxisBlock<C, Taps>& out) {
  HS_INDEPENDENT
  for (int64_t p = 0; p < n; ++p) {
    AxisTaps<C, Taps> t;
    axis_taps(a, coordinates[p * step], size, t);
    for (int k = 0; k < Taps; ++k) {
      out.index[k][p] = int32_t(t.index[k]);
      out.weight[k][p] = t.weight[k];
      out.slope[k][p] = t.slope[k];
    }
  }
}
template <class C, int Taps>
HS_CLONES void fill_any_axis(const SampleArgs& a, const C* coordinates, int64_t step, int64_t size, int64_t n,
                             AxisBlock<C, Taps>& out) {
  fill_axis(a, coordinates, step, size, n, out);
}
// Fills the taps of the usual modes, in a loop that vectorises because the mode is fixed.
template <class C>
HS_CLONES void fill_usual_axis(bool align_corners, const C* coordinates, int64_t step, int64_t size, int64_t n,
                               AxisBlock<C, 2>& out) {
  const SampleArgs a{.mode = SampleMode::bilinear, .padding = SamplePadding::zeros, .align_corners = align_corners};
  fill_axis(a, coordinates, step, size, n, out);
}

template <class C, int Dims>
HS_CLONES void join_axes(const int32_t* const* index, const C* const* factor, const int64_t* size, int64_t n, int32_t* index_out,
                         C* out) {
  HS_INDEPENDENT
  for (int64_t p = 0; p < n; ++p) {
    int32_t place = 0;
    C product = 1;
    bool inside = true;
#pragma GCC unroll 3
    for (int d = Dims - 1; d >= 0; --d) {
      inside &= index[d][p] >= 0;
      place = place * int32_t(size[d]) + index[d][p];
      product *= factor[d][p];
    }
    if (index_out) index_out[p] = inside ? place : 0;
    out[p] = inside ? product : C(0);
  }
}

template <class C, int Dims, int Taps>
void fill_block(const SampleArgs& a, const GridSizes& s, bool slopes, Block<C>& b) {
  constexpr int kAll = Dims == 3 ? Taps * Taps * Taps : Taps * Taps;
  b.taps = kAll;
  b.index.resize(kAll * kPoints);
  b.weight.resize(kAll * kPoints);
  for (int d = 0; d < (slopes ? Dims : 0); ++d) b.slope[d].resize(kAll * kPoints);
  AxisBlock<C, Taps> axis[Dims];
  for (int d = 0; d < Dims; ++d) {
    if constexpr (Taps == 2) {
      if (a.mode == SampleMode::bilinear && a.padding == SamplePadding::zeros) {
        fill_usual_axis<C>(a.align_corners, b.coordinates.data() + d, Dims, s.in[d], b.count, axis[d]);
        continue;
      }
    }
    fill_any_axis<C, Taps>(a, b.coordinates.data() + d, Dims, s.in[d], b.count, axis[d]);
  }
  for (int t = 0; t < kAll; ++t) {
    const int k[3] = {t % Taps, t / Taps % Taps, t / Taps / Taps};
    const int32_t* index[Dims];
    const C* factor[Dims];
    for (int d = 0; d < Dims; ++d) {
      index[d] = axis[d].index[k[d]];
      factor[d] = axis[d].weight[k[d]];
    }
    const size_t to = size_t(t * kPoints);
    join_axes<C, Dims>(index, factor, s.in, b.count, &b.index[to], &b.weight[to]);
    for (int d = 0; d < (slopes ? Dims : 0); ++d) {
      factor[d] = axis[d].slope[k[d]];
      join_axes<C, Dims>(index, factor, s.in, b.count, nullptr, &b.slope[d][to]);
      factor[d] = axis[d].weight[k[d]];
    }
  }
}

template <class C>
void read_block(const SampleArgs& a, const GridSizes& s, const TensorView& grid, int64_t n, int64_t block, bool slopes,
                Block<C>& b) {
  const int64_t first = block * kPoints;
  b.count = std::min(kPoints, s.points - first);
  b.coordinates.resize(size_t(b.count * s.dims));
  load<C>(grid.dtype, at(grid, (n * s.points + first) * s.dims), 1, b.coordinates.data(), b.count * s.dims);
  if (a.mode == SampleMode::bicubic)
    fill_block<C, 2, 4>(a, s, slopes, b);
  else if (s.dims == 2)
    fill_block<C, 2, 2>(a, s, slopes, b);
  else
    fill_block<C, 3, 2>(a, s, slopes, b);
}

// Computes sum[p] += weight x[index] for four taps; skips reads with weight 0.
template <class C>
HS_CLONES void sample_four(const C* x, const int32_t* index, const C* weight, C* sum, int64_t n) {
  HS_INDEPENDENT
  for (int64_t p = 0; p < n; ++p) {
    C total = sum[p];
#pragma GCC unroll 4
    for (int64_t t = 0; t < 4; ++t) {
      const C w = weight[t * kPoints + p], v = w * x[index[t * kPoints + p]];
      total += w == C(0) ? C(0) : v;
    }
    sum[p] = total;
  }
}
// Computes sum[d][p] += slope[d] x[index] g[p] for four taps; skips reads with slope 0.
template <class C, int Dims>
HS_CLONES void slope_four(const C* x, const int32_t* index, const C* const* slope, const C* g, C (*sum)[kPoints], int64_t n) {
  HS_INDEPENDENT
  for (int64_t p = 0; p < n; ++p) {
    C total[Dims] = {};
#pragma GCC unroll 4
    for (int64_t t = 0; t < 4; ++t) {
      const C v = x[index[t * kPoints + p]] * g[p];
#pragma GCC unroll 3
      for (int d = 0; d < Dims; ++d) {
        const C f = slope[d][t * kPoints + p], part = f * v;
        total[d] += f == C(0) ? C(0) : part;
      }
    }
#pragma GCC unroll 3
    for (int d = 0; d < Dims; ++d) sum[d][p] += total[d];
  }
}

// x as C: in place, or widened once.
template <class C>
class Widened {
 public:
  explicit Widened(const TensorView& x) {
    if (x.dtype == dtype_of<C>) {
      data_ = x.as<const C>();
      return;
    }
    memory_.resize(size_t(x.numel()));
    parallel_for(x.numel(), kBlock, x.numel(),
                 [&](int64_t begin, int64_t end) { load<C>(x.dtype, at(x, begin), 1, memory_.data() + begin, end - begin); });
    data_ = memory_.data();
  }
  const C* data() const { return data_; }

 private:
  const C* data_;
  std::vector<C> memory_;
};

template <class C>
void sample(const SampleArgs& a, const TensorView& x, const TensorView& grid, const TensorView& out) {
  const GridSizes s(x, grid);
  const Widened<C> source(x);
  parallel_for(s.batch * s.blocks(), 1, out.numel() * 8, [&](int64_t begin, int64_t end) {
    Block<C> b;
    C sums[kPoints];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t n = task / s.blocks(), block = task % s.blocks();
      read_block(a, s, grid, n, block, false, b);
      for (int64_t c = 0; c < s.channels; ++c) {
        const C* const plane = source.data() + (n * s.channels + c) * s.plane;
        std::fill_n(sums, b.count, C(0));
        for (int t = 0; t < b.taps; t += 4)
          sample_four(plane, &b.index[size_t(t * kPoints)], &b.weight[size_t(t * kPoints)], sums, b.count);
        store<C>(out.dtype, sums, at(out, (n * s.channels + c) * s.points + block * kPoints), 1, b.count);
      }
    }
  });
}

// Computes dx: each thread has its own channels and visits the points in order.
template <class C>
void scatter_gradient(const SampleArgs& a, const GridSizes& s, const TensorView& grad, const TensorView& grid,
                      const TensorView& dx) {
  const bool direct = dx.dtype == dtype_of<C>;
  const int64_t groups = (s.channels + kChannels - 1) / kChannels;
  parallel_tasks(s.batch * groups, grad.numel() * 8, [&](int64_t task) {
    const int64_t n = task / groups, first = task % groups * kChannels, count = std::min(kChannels, s.channels - first);
    const int64_t from = (n * s.channels + first) * s.plane;
    std::vector<C> memory(direct ? 0 : size_t(count * s.plane));
    C* const sums = direct ? dx.as<C>() + from : memory.data();
    std::fill_n(sums, count * s.plane, C(0));
    Block<C> b;
    C g[kPoints];
    for (int64_t block = 0; block < s.blocks(); ++block) {
      read_block(a, s, grid, n, block, false, b);
      for (int64_t c = 0; c < count; ++c) {
        load<C>(grad.dtype, at(grad, (n * s.channels + first + c) * s.points + block * kPoints), 1, g, b.count);
        C* const plane = sums + c * s.plane;
        for (int t = 0; t < b.taps; ++t) {
          const int32_t* const index = &b.index[size_t(t * kPoints)];
          const C* const weight = &b.weight[size_t(t * kPoints)];
          for (int64_t p = 0; p < b.count; ++p)
            if (weight[p] != C(0)) plane[index[p]] += weight[p] * g[p];
        }
      }
    }
    if (!direct) store<C>(dx.dtype, sums, at(dx, from), 1, count * s.plane);
  });
}

template <class C>
void grid_gradient(const SampleArgs& a, const GridSizes& s, const TensorView& grad, const TensorView& x, const TensorView& grid,
                   const TensorView& dgrid) {
  const Widened<C> source(x);
  parallel_for(s.batch * s.blocks(), 1, grad.numel() * 8, [&](int64_t begin, int64_t end) {
    Block<C> b;
    C g[kPoints], sums[3][kPoints], out[3 * kPoints];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t n = task / s.blocks(), block = task % s.blocks();
      read_block(a, s, grid, n, block, true, b);
      for (int d = 0; d < s.dims; ++d) std::fill_n(sums[d], b.count, C(0));
      for (int64_t c = 0; c < s.channels; ++c) {
        const int64_t plane = n * s.channels + c;
        load<C>(grad.dtype, at(grad, plane * s.points + block * kPoints), 1, g, b.count);
        for (int t = 0; t < b.taps; t += 4) {
          const size_t from = size_t(t * kPoints);
          const C* const slope[3] = {&b.slope[0][from], &b.slope[1][from], s.dims == 3 ? &b.slope[2][from] : nullptr};
          const auto four = s.dims == 3 ? slope_four<C, 3> : slope_four<C, 2>;
          four(source.data() + plane * s.plane, &b.index[from], slope, g, sums, b.count);
        }
      }
      for (int64_t p = 0; p < b.count; ++p)
        for (int d = 0; d < s.dims; ++d) out[p * s.dims + d] = sums[d][p];
      store<C>(dgrid.dtype, out, at(dgrid, (n * s.points + block * kPoints) * s.dims), 1, b.count * s.dims);
    }
  });
}

template <class F>
void in_compute_type(DType t, const F& f) {
  if (t == DType::f64)
    f(double{});
  else
    f(float{});
}

}  // namespace

void grid_sample(const SampleArgs& args, const TensorView& x, const TensorView& grid, const TensorView& out) {
  if (out.numel() == 0) return;
  in_compute_type(x.dtype, [&](auto tag) { sample<decltype(tag)>(args, x, grid, out); });
}

void grid_sample_backward(const SampleArgs& args, const TensorView& grad, const TensorView& x, const TensorView& grid,
                          const TensorView& dx, const TensorView& dgrid) {
  const GridSizes s(x, grid);
  in_compute_type(x.dtype, [&](auto tag) {
    using C = decltype(tag);
    if (dx && dx.numel() > 0) scatter_gradient<C>(args, s, grad, grid, dx);
    if (dgrid && dgrid.numel() > 0) grid_gradient<C>(args, s, grad, x, grid, dgrid);
  });
}

}  // namespace halfstep::cpu
