// SPDX-License-Identifier: Apache-2.0
// Softmax of rows [R, n], and its gradient. m is the row's maximum, so that exp does not overflow.
//   softmax      y = exp(x - m) / sum exp(x - m);  dx = y (g - sum(g y))
//   log_softmax  y = x - m - log(sum exp(x - m));  dx = g - exp(y) sum(g)
// A row is read once; of a very long row, the end is read again from the cache.
#include "cuda/kernels/reduce/rows.cuh"

namespace halfstep::cuda {
namespace {

template <class Rows, int Warps>
__global__ void __launch_bounds__(kThreads) softmax_kernel(Rows x, Rows out, Space<2> rows, int64_t n, bool log) {
  using C = typename Rows::Compute;
  using Group = RowGroup<Warps>;
  SHARED(C, tops, [kBlockWarps]);
  SHARED(double, sums, [kBlockWarps]);
  for (int64_t r = Group::first_row(); r < rows.numel; r += Group::row_step()) {
    int64_t at[2];  // in out and x
    rows.offsets(r, at);
    const HeldRows<Rows, Group, 1> row({x}, {at[1]}, n);
    Exponentials<C> e;
    row.each([&](int64_t, const auto& v) { e.add(v[0]); });
    const double total = e.template join<Group>(&tops[0], &sums[0]);
    const C rest = log ? C(::log(total)) : C(1 / total);
    row.each([&](int64_t i, auto& v) {
#pragma unroll
      for (C& value : v[0]) value = log ? C(value - e.top - rest) : C(m::exp(C(value - e.top)) * rest);
      out.store(at[0], i, v[0]);
    });
  }
}

// Computes dx = y (g - sum(g y));  log: dx = g - e^y sum(g)
template <class Rows, int Warps>
__global__ void __launch_bounds__(kThreads)
    softmax_backward_kernel(Rows grad, Rows y, Rows out, Space<3> rows, int64_t n, bool log) {
  using C = typename Rows::Compute;
  using Group = RowGroup<Warps>;
  SHARED(double, sums, [kBlockWarps]);
  for (int64_t r = Group::first_row(); r < rows.numel; r += Group::row_step()) {
    int64_t at[3];  // in out, grad and y
    rows.offsets(r, at);
    const HeldRows<Rows, Group, 2> row({grad, y}, {at[1], at[2]}, n);
    C sum = 0;
    row.each([&](int64_t, const auto& v) {
#pragma unroll
      for (int j = 0; j < length_of(v[0]); ++j) sum += log ? v[0][j] : v[0][j] * v[1][j];
    });
    const C total = C(Group::template join<SumJoin>(double(sum), &sums[0]));
    row.each([&](int64_t i, auto& v) {
#pragma unroll
      for (int j = 0; j < length_of(v[0]); ++j)
        v[0][j] = log ? C(v[0][j] - m::exp(v[1][j]) * total) : C(v[1][j] * (v[0][j] - total));
      out.store(at[0], i, v[0]);
    });
  }
}

}  // namespace

void softmax(const Queue& q, const TensorView& x, const TensorView& out, int dim, bool log) {
  const Space<2> rows(without(out.shape, dim), {&out.strides, &x.strides});
  const int64_t n = row_length(out, dim);
  if (rows.numel == 0 || n == 0) return;
  for_rows({&x, &out}, dim, [&](auto* kind) {
    using Rows = std::remove_pointer_t<decltype(kind)>;
    const auto kernel = n <= kWarpRow ? softmax_kernel<Rows, 1> : softmax_kernel<Rows, kBlockWarps>;
    launch(kernel, row_blocks(rows.numel, n), kThreads, 0, q.stream, Rows(x, row_stride(x, dim)), Rows(out, row_stride(out, dim)),
           rows, n, log);
  });
}

void softmax_backward(const Queue& q, const TensorView& grad, const TensorView& y, const TensorView& out, int dim, bool log) {
  const Space<3> rows(without(out.shape, dim), {&out.strides, &grad.strides, &y.strides});
  const int64_t n = row_length(out, dim);
  if (rows.numel == 0 || n == 0) return;
  for_rows({&grad, &y, &out}, dim, [&](auto* kind) {
    using Rows = std::remove_pointer_t<decltype(kind)>;
    const auto kernel = n <= kWarpRow ? softmax_backward_kernel<Rows, 1> : softmax_backward_kernel<Rows, kBlockWarps>;
    launch(kernel, row_blocks(rows.numel, n), kThreads, 0, q.stream, Rows(grad, row_stride(grad, dim)), Rows(y, row_stride(y, dim)),
           Rows(out, row_stride(out, dim)), rows, n, log);
  });
}

}  // namespace halfstep::cuda
