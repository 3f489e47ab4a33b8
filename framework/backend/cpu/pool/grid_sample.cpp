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
  C start[kPoints];  // of each point: what sums over its taps begin with
};

// The taps of a block along one dimension.
template <class C, int Taps>
struct AxisBlock {
  int32_t index[Taps][kPoints];
  C weight[Taps][kPoints], slope[Taps][kPoints];
};

template <class C, int Taps>
[[gnu::always_inline]] inline void fill_axis(const SampleArgs& args, const C* coordinates, int64_t step, int64_t size, int64_t n,
                                             AxisBlock<C, Taps>& out) {
  HS_INDEPENDENT
  for (int64_t p = 0; p < n; ++p) {
    AxisTaps<C, Taps> t;
    axis_taps(args, coordinates[p * step], size, t);
    for (int k = 0; k < Taps; ++k) {
      out.index[k][p] = int32_t(t.index[k]);
      out.weight[k][p] = t.weight[k];
      out.slope[k][p] = t.slope[k];
    }
  }
}
template <class C, int Taps>
HS_CLONES void fill_any_axis(const SampleArgs& args, const C* coordinates, int64_t step, int64_t size, int64_t n,
                             AxisBlock<C, Taps>& out) {
  fill_axis(args, coordinates, step, size, n, out);
}
// Fills the taps of the usual modes, in a loop that vectorises because the mode is fixed.
template <class C>
HS_CLONES void fill_usual_axis(bool align_corners, const C* coordinates, int64_t step, int64_t size, int64_t n,
                               AxisBlock<C, 2>& out) {
  const SampleArgs args{.mode = SampleMode::bilinear, .padding = SamplePadding::zeros, .align_corners = align_corners};
  fill_axis(args, coordinates, step, size, n, out);
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
void fill_block(const SampleArgs& args, const GridSizes& sizes, bool slopes, Block<C>& block) {
  constexpr int kAll = Dims == 3 ? Taps * Taps * Taps : Taps * Taps;
  block.taps = kAll;
  block.index.resize(kAll * kPoints);
  block.weight.resize(kAll * kPoints);
  for (int d = 0; d < (slopes ? Dims : 0); ++d) block.slope[d].resize(kAll * kPoints);
  AxisBlock<C, Taps> axis[Dims];
  for (int d = 0; d < Dims; ++d) {
    if constexpr (Taps == 2) {
      if (args.mode == SampleMode::bilinear && args.padding == SamplePadding::zeros) {
        fill_usual_axis<C>(args.align_corners, block.coordinates.data() + d, Dims, sizes.in[d], block.count, axis[d]);
        continue;
      }
    }
    fill_any_axis<C, Taps>(args, block.coordinates.data() + d, Dims, sizes.in[d], block.count, axis[d]);
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
    join_axes<C, Dims>(index, factor, sizes.in, block.count, &block.index[to], &block.weight[to]);
    for (int d = 0; d < (slopes ? Dims : 0); ++d) {
      factor[d] = axis[d].slope[k[d]];
      join_axes<C, Dims>(index, factor, sizes.in, block.count, nullptr, &block.slope[d][to]);
      factor[d] = axis[d].weight[k[d]];
    }
  }
}

template <class C>
void read_block(const SampleArgs& args, const GridSizes& sizes, const TensorView& grid, int64_t n, int64_t block_index, bool slopes,
                Block<C>& block) {
  const int64_t first = block_index * kPoints;
  block.count = std::min(kPoints, sizes.points - first);
  block.coordinates.resize(size_t(block.count * sizes.dims));
  load<C>(grid.dtype, at(grid, (n * sizes.points + first) * sizes.dims), 1, block.coordinates.data(), block.count * sizes.dims);
  for (int64_t p = 0; p < block.count; ++p) {
    block.start[p] = C(0);
    for (int d = 0; d < sizes.dims; ++d) block.start[p] += start_of(args, block.coordinates[size_t(p * sizes.dims + d)]);
  }
  if (args.mode == SampleMode::bicubic)
    fill_block<C, 2, 4>(args, sizes, slopes, block);
  else if (sizes.dims == 2)
    fill_block<C, 2, 2>(args, sizes, slopes, block);
  else
    fill_block<C, 3, 2>(args, sizes, slopes, block);
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
void sample(const SampleArgs& args, const TensorView& x, const TensorView& grid, const TensorView& out) {
  const GridSizes sizes(x, grid);
  const Widened<C> source(x);
  parallel_for(sizes.batch * sizes.blocks(), 1, out.numel() * 8, [&](int64_t begin, int64_t end) {
    Block<C> block;
    C sums[kPoints];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t n = task / sizes.blocks(), block_index = task % sizes.blocks();
      read_block(args, sizes, grid, n, block_index, false, block);
      for (int64_t c = 0; c < sizes.channels; ++c) {
        const C* const plane = source.data() + (n * sizes.channels + c) * sizes.plane;
        std::copy_n(block.start, block.count, sums);
        for (int t = 0; t < block.taps; t += 4)
          sample_four(plane, &block.index[size_t(t * kPoints)], &block.weight[size_t(t * kPoints)], sums, block.count);
        store<C>(out.dtype, sums, at(out, (n * sizes.channels + c) * sizes.points + block_index * kPoints), 1, block.count);
      }
    }
  });
}

// Computes dx: each thread has its own channels and visits the points in order.
template <class C>
void scatter_gradient(const SampleArgs& args, const GridSizes& sizes, const TensorView& grad, const TensorView& grid,
                      const TensorView& dx) {
  const bool direct = dx.dtype == dtype_of<C>;
  const int64_t groups = (sizes.channels + kChannels - 1) / kChannels;
  parallel_tasks(sizes.batch * groups, grad.numel() * 8, [&](int64_t task) {
    const int64_t n = task / groups, first = task % groups * kChannels, count = std::min(kChannels, sizes.channels - first);
    const int64_t from = (n * sizes.channels + first) * sizes.plane;
    std::vector<C> memory(direct ? 0 : size_t(count * sizes.plane));
    C* const sums = direct ? dx.as<C>() + from : memory.data();
    std::fill_n(sums, count * sizes.plane, C(0));
    Block<C> block;
    C g[kPoints];
    for (int64_t block_index = 0; block_index < sizes.blocks(); ++block_index) {
      read_block(args, sizes, grid, n, block_index, false, block);
      for (int64_t c = 0; c < count; ++c) {
        load<C>(grad.dtype, at(grad, (n * sizes.channels + first + c) * sizes.points + block_index * kPoints), 1, g, block.count);
        C* const plane = sums + c * sizes.plane;
        for (int t = 0; t < block.taps; ++t) {
          const int32_t* const index = &block.index[size_t(t * kPoints)];
          const C* const weight = &block.weight[size_t(t * kPoints)];
          for (int64_t p = 0; p < block.count; ++p)
            if (weight[p] != C(0)) plane[index[p]] += weight[p] * g[p];
        }
      }
    }
    if (!direct) store<C>(dx.dtype, sums, at(dx, from), 1, count * sizes.plane);
  });
}

template <class C>
void grid_gradient(const SampleArgs& args, const GridSizes& sizes, const TensorView& grad, const TensorView& x,
                   const TensorView& grid, const TensorView& dgrid) {
  const Widened<C> source(x);
  parallel_for(sizes.batch * sizes.blocks(), 1, grad.numel() * 8, [&](int64_t begin, int64_t end) {
    Block<C> block;
    C g[kPoints], sums[3][kPoints], out[3 * kPoints];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t n = task / sizes.blocks(), block_index = task % sizes.blocks();
      read_block(args, sizes, grid, n, block_index, true, block);
      for (int d = 0; d < sizes.dims; ++d) std::copy_n(block.start, block.count, sums[d]);
      for (int64_t c = 0; c < sizes.channels; ++c) {
        const int64_t plane = n * sizes.channels + c;
        load<C>(grad.dtype, at(grad, plane * sizes.points + block_index * kPoints), 1, g, block.count);
        for (int t = 0; t < block.taps; t += 4) {
          const size_t from = size_t(t * kPoints);
          const C* const slope[3] = {&block.slope[0][from], &block.slope[1][from],
                                     sizes.dims == 3 ? &block.slope[2][from] : nullptr};
          const auto four = sizes.dims == 3 ? slope_four<C, 3> : slope_four<C, 2>;
          four(source.data() + plane * sizes.plane, &block.index[from], slope, g, sums, block.count);
        }
      }
      for (int64_t p = 0; p < block.count; ++p)
        for (int d = 0; d < sizes.dims; ++d) out[p * sizes.dims + d] = sums[d][p];
      store<C>(dgrid.dtype, out, at(dgrid, (n * sizes.points + block_index * kPoints) * sizes.dims), 1, block.count * sizes.dims);
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
  const GridSizes sizes(x, grid);
  in_compute_type(x.dtype, [&](auto tag) {
    using C = decltype(tag);
    if (dx && dx.numel() > 0) scatter_gradient<C>(args, sizes, grad, grid, dx);
    if (dgrid && dgrid.numel() > 0) grid_gradient<C>(args, sizes, grad, x, grid, dgrid);
  });
}

}  // namespace halfstep::cpu
