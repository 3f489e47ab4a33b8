// SPDX-License-Identifier: Apache-2.0
// Samples x [N, C, in...] at the P points of each sample that `grid` [N, P, dims] lists. Each point has taps t, with positions i_t
// in x and weights w_t that depend on its coordinates u; taps outside count 0.
//   forward   out[n, c, p] = sum over t of w_t x[n, c, i_t]
//   backward  dx[n, c, i_t] += w_t g[n, c, p];  dgrid[n, p, d] = sum over c, t of g[n, c, p] x[n, c, i_t] dw_t / du_d
// Forward: one thread per point and some channels. dgrid likewise. dx is summed in shared memory, one block per tile of a plane,
// in the order of the points.
#include "cuda/kernels/elementwise/divide.cuh"
#include "cuda/kernels/reduce/ordered.cuh"
#include "framework/backend/grid_taps.h"

namespace halfstep::cuda {
namespace {

constexpr int kChannels = 16;  // most channels of a thread, forward

struct GridSizes {
  int64_t batch, channels, points = 1, plane = 1;  // points of a sample; elements of a channel of a sample of x
  int64_t in[3] = {1, 1, 1};                       // sizes of x along x, y and z

  GridSizes(const TensorView& x, const TensorView& grid) : batch(x.shape[0]), channels(x.shape[1]) {
    const int dims = x.shape.size() - 2;
    for (int d = 0; d < dims; ++d) {
      in[dims - 1 - d] = x.shape[2 + d];
      plane *= x.shape[2 + d];
      points *= grid.shape[1 + d];
    }
  }
};

// The taps of a point along each dimension.
template <class C, int Dims, int Taps>
struct Point {
  AxisTaps<C, Taps> axis[Dims];
  C start = 0;  // what sums over the taps begin with

  __device__ Point(const SampleArgs& a, const GridSizes& s, const Operand& grid, int64_t point) {
#pragma unroll
    for (int d = 0; d < Dims; ++d) {
      const C g = grid.load_floating<C>(point * Dims + d);
      axis_taps(a, g, s.in[d], axis[d]);
      start += start_of(a, g);
    }
  }
  // Calls f(index in the plane, or -1 outside, weight, kx, ky, kz) for all taps. Unroll 1: less code, for a long f.
  template <int Unroll = Taps, class F>
  __device__ void each(const GridSizes& s, const F& f) const {
#pragma unroll Unroll
    for (int kz = 0; kz < (Dims == 3 ? Taps : 1); ++kz) {
#pragma unroll Unroll
      for (int ky = 0; ky < Taps; ++ky) {
#pragma unroll Unroll
        for (int kx = 0; kx < Taps; ++kx) {
          int64_t index = axis[1].index[ky];
          C weight = axis[1].weight[ky];
          bool inside = axis[0].index[kx] >= 0 && index >= 0;
          if constexpr (Dims == 3) {
            inside = inside && axis[2].index[kz] >= 0;
            index += axis[2].index[kz] * s.in[1];
            weight *= axis[2].weight[kz];
          }
          index = index * s.in[0] + axis[0].index[kx];
          f(inside ? index : -1, C(weight * axis[0].weight[kx]), kx, ky, kz);
        }
      }
    }
  }
};

template <class C, int Dims, int Taps>
__global__ void __launch_bounds__(kThreads) sample_kernel(SampleArgs a, GridSizes s, Operand x, Operand grid, Operand out) {
  const int64_t groups = quotient(s.channels + kChannels - 1, kChannels), tasks = s.batch * groups * s.points;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < tasks; i += step) {
    const int64_t row = quotient(i, s.points), p = i - row * s.points, n = quotient(row, groups);
    const int64_t first = (row - n * groups) * kChannels, last = first + kChannels < s.channels ? first + kChannels : s.channels;
    const Point<C, Dims, Taps> point(a, s, grid, n * s.points + p);
    for (int64_t c = first; c < last; ++c) {
      const int64_t plane = n * s.channels + c;
      C sum = point.start;
      point.each(s, [&](int64_t index, C weight, int, int, int) {
        if (index >= 0 && weight != C(0)) sum += weight * x.load_floating<C>(plane * s.plane + index);
      });
      out.store_floating(plane * s.points + p, sum);
    }
  }
}

template <class C, int Dims, int Taps>
__global__ void __launch_bounds__(kThreads)
    grid_gradient_kernel(SampleArgs a, GridSizes s, Operand grad, Operand x, Operand grid, Operand dgrid) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < s.batch * s.points; i += step) {
    const int64_t n = quotient(i, s.points), p = i - n * s.points;
    const Point<C, Dims, Taps> point(a, s, grid, i);
    C sum[3] = {point.start, point.start, point.start};
    for (int64_t c = 0; c < s.channels; ++c) {
      const int64_t plane = n * s.channels + c;
      const C g = grad.load_floating<C>(plane * s.points + p);
      point.each(s, [&](int64_t index, C, int kx, int ky, int kz) {
        if (index < 0) return;
        const auto& t = point.axis;
        const C v = g * x.load_floating<C>(plane * s.plane + index);
        C wz = 1, sz = 0;
        if constexpr (Dims == 3) {
          wz = t[2].weight[kz];
          sz = t[2].slope[kz];
        }
        sum[0] += v * t[0].slope[kx] * t[1].weight[ky] * wz;
        sum[1] += v * t[0].weight[kx] * t[1].slope[ky] * wz;
        if constexpr (Dims == 3) sum[2] += v * t[0].weight[kx] * t[1].weight[ky] * sz;
      });
    }
#pragma unroll
    for (int d = 0; d < Dims; ++d) dgrid.store_floating(i * Dims + d, sum[d]);
  }
}

template <class C, int Dims, int Taps>
__global__ void __launch_bounds__(kThreads)
    input_gradient_kernel(SampleArgs a, GridSizes s, Operand grad, Operand grid, Operand dx) {
  SHARED(C, sum, [kTile]);
  SHARED(int, owner, [kTile]);
  const int64_t tiles = quotient(s.plane + kTile - 1, kTile);
  for (int64_t task = blockIdx.x; task < s.batch * s.channels * tiles; task += gridDim.x) {
    const int64_t plane = quotient(task, tiles), from = (task - plane * tiles) * kTile, n = quotient(plane, s.channels);
    clear_tile(&sum[0], &owner[0]);
    for (int64_t base = 0; base < s.points; base += kThreads) {
      const int64_t p = base + threadIdx.x;
      const bool is_point = p < s.points;
      const Point<C, Dims, Taps> point(a, s, grid, n * s.points + (is_point ? p : 0));
      const C g = is_point ? grad.load_floating<C>(plane * s.points + p) : C(0);
      point.template each<1>(s, [&](int64_t index, C weight, int, int, int) {
        const bool here = is_point && weight != C(0) && index >= from && index < from + kTile;
        add_in_order(&sum[0], &owner[0], here ? int(index - from) : -1, C(weight * g));
      });
    }
    for (int i = int(threadIdx.x); i < kTile && from + i < s.plane; i += kThreads)
      dx.store_floating(plane * s.plane + from + i, sum[i]);
  }
}

// Calls f(compute type, dimensions, taps).
template <class F>
void choose(const SampleArgs& a, const TensorView& x, const F& f) {
  const auto in = [&](auto c) {
    if (a.mode == SampleMode::bicubic)
      f(c, std::integral_constant<int, 2>(), std::integral_constant<int, 4>());
    else if (x.shape.size() == 4)
      f(c, std::integral_constant<int, 2>(), std::integral_constant<int, 2>());
    else
      f(c, std::integral_constant<int, 3>(), std::integral_constant<int, 2>());
  };
  x.dtype == DType::f64 ? in(double{}) : in(float{});
}

}  // namespace

void grid_sample(const Queue& q, const SampleArgs& args, const TensorView& x, const TensorView& grid, const TensorView& out) {
  if (out.numel() == 0) return;
  const GridSizes s(x, grid);
  choose(args, x, [&](auto c, auto dims, auto taps) {
    launch(sample_kernel<decltype(c), dims.value, taps.value>,
           blocks_for(s.batch * ((s.channels + kChannels - 1) / kChannels) * s.points, kThreads), kThreads, 0, q.stream, args, s,
           Operand(x), Operand(grid), Operand(out));
  });
}

void grid_sample_backward(const Queue& q, const SampleArgs& args, const TensorView& grad, const TensorView& x,
                          const TensorView& grid, const TensorView& dx, const TensorView& dgrid) {
  const GridSizes s(x, grid);
  choose(args, x, [&](auto c, auto dims, auto taps) {
    using C = decltype(c);
    if (dx && dx.numel() > 0) {
      launch(input_gradient_kernel<C, dims.value, taps.value>,
             blocks_for(s.batch * s.channels * ((s.plane + kTile - 1) / kTile), 1), kThreads, 0, q.stream, args, s, Operand(grad),
             Operand(grid), Operand(dx));
    }
    if (dgrid && dgrid.numel() > 0) {
      launch(grid_gradient_kernel<C, dims.value, taps.value>, blocks_for(s.batch * s.points, kThreads), kThreads, 0, q.stream, args,
             s, Operand(grad), Operand(x), Operand(grid), Operand(dgrid));
    }
  });
}

}  // namespace halfstep::cuda
