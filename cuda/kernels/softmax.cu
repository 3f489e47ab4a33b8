// Softmax and log-softmax, shifted by the row's maximum; their gradients.
#include "cuda/kernels/rows.cuh"

namespace halfstep::cuda {
namespace {

template <class C, int Warps>
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(Operand x, Operand out, Space<2> rows, int64_t n, int64_t x_step, int64_t out_step, bool log) {
  using Group = RowGroup<Warps>;
  SHARED(C, tops, [kBlockWarps]);
  SHARED(double, sums, [kBlockWarps]);
  for (int64_t r = Group::first_row(); r < rows.numel; r += Group::row_step()) {
    int64_t at[2];  // in out and x
    rows.offsets(r, at);
    C top = C(-INFINITY);
    for (int64_t i = Group::rank(); i < n; i += Group::kSize) top = MaxJoin::join(top, x.load<C>(at[1] + i * x_step));
    top = Group::template join<MaxJoin>(top, &tops[0]);
    C sum = 0;
    for (int64_t i = Group::rank(); i < n; i += Group::kSize) sum += m::exp(C(x.load<C>(at[1] + i * x_step) - top));
    const double total = Group::template join<SumJoin>(double(sum), &sums[0]);
    const C rest = log ? C(::log(total)) : C(1 / total);
    for (int64_t i = Group::rank(); i < n; i += Group::kSize) {
      const C shifted = x.load<C>(at[1] + i * x_step) - top;
      out.store(at[0] + i * out_step, log ? C(shifted - rest) : C(m::exp(shifted) * rest));
    }
  }
}

// dx = y (g - sum(g y));  log: dx = g - e^y sum(g)
template <class C, int Warps>
__global__ void __launch_bounds__(kThreads) softmax_backward_kernel(Operand grad, Operand y, Operand out, Space<3> rows, int64_t n,
                                                                    int64_t grad_step, int64_t y_step, int64_t out_step, bool log) {
  using Group = RowGroup<Warps>;
  SHARED(double, sums, [kBlockWarps]);
  for (int64_t r = Group::first_row(); r < rows.numel; r += Group::row_step()) {
    int64_t at[3];  // in out, grad and y
    rows.offsets(r, at);
    C sum = 0;
    for (int64_t i = Group::rank(); i < n; i += Group::kSize) {
      const C g = grad.load<C>(at[1] + i * grad_step);
      sum += log ? g : g * y.load<C>(at[2] + i * y_step);
    }
    const C total = C(Group::template join<SumJoin>(double(sum), &sums[0]));
    for (int64_t i = Group::rank(); i < n; i += Group::kSize) {
      const C g = grad.load<C>(at[1] + i * grad_step), v = y.load<C>(at[2] + i * y_step);
      out.store(at[0] + i * out_step, log ? C(g - m::exp(v) * total) : C(v * (g - total)));
    }
  }
}

}  // namespace

void softmax(const Queue& q, const TensorView& x, const TensorView& out, int dim, bool log) {
  const Space<2> rows(without(out.shape, dim), {&out.strides, &x.strides});
  const int64_t n = row_length(out, dim);
  if (rows.numel == 0 || n == 0) return;
  const bool wide = x.dtype == DType::f64 || out.dtype == DType::f64, shorter = n <= kWarpRow;
  const auto kernel = wide ? (shorter ? softmax_kernel<double, 1> : softmax_kernel<double, kBlockWarps>)
                           : (shorter ? softmax_kernel<float, 1> : softmax_kernel<float, kBlockWarps>);
  launch(kernel, row_blocks(rows.numel, n), kThreads, 0, q.stream, Operand(x), Operand(out), rows, n, row_stride(x, dim),
         row_stride(out, dim), log);
}

void softmax_backward(const Queue& q, const TensorView& grad, const TensorView& y, const TensorView& out, int dim, bool log) {
  const Space<3> rows(without(out.shape, dim), {&out.strides, &grad.strides, &y.strides});
  const int64_t n = row_length(out, dim);
  if (rows.numel == 0 || n == 0) return;
  const bool wide = grad.dtype == DType::f64 || y.dtype == DType::f64 || out.dtype == DType::f64, shorter = n <= kWarpRow;
  const auto kernel = wide ? (shorter ? softmax_backward_kernel<double, 1> : softmax_backward_kernel<double, kBlockWarps>)
                           : (shorter ? softmax_backward_kernel<float, 1> : softmax_backward_kernel<float, kBlockWarps>);
  launch(kernel, row_blocks(rows.numel, n), kThreads, 0, q.stream, Operand(grad), Operand(y), Operand(out), rows, n,
         row_stride(grad, dim), row_stride(y, dim), row_stride(out, dim), log);
}

}  // namespace halfstep::cuda
