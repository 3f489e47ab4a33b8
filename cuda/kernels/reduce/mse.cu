// SPDX-License-Identifier: Apache-2.0
// Squared error of a and b, n elements each: loss = sum (a - b)^2, da = 2 (a - b) g, db = -da; the mean divides all by n.
#include "cuda/kernels/reduce/losses.cuh"

namespace halfstep::cuda {
namespace {

// Adds up the squares of dense predictions of A and targets of B, in 16-byte packs of predictions. If `out` is given, also computes
// the gradient of the predictions.
template <class A, class B>
__global__ void __launch_bounds__(kThreads) mse_packed(const A* a, const B* b, int64_t n, Partials partials, Operand grad, A* out) {
  constexpr int kPack = kPackOf<A>;
  SHARED(double, shared, [kBlockWarps]);
  const int64_t first = int64_t(blockIdx.x) * kThreads + threadIdx.x, step = int64_t(gridDim.x) * kThreads;
  const float factor = out ? float(2 * grad.load_floating<double>(0) / partials.count) : 0.0f;
  double sum[1] = {0};
#pragma unroll 2
  for (int64_t p = first; p < n / kPack; p += step) {
    float x[kPack], y[kPack], pack = 0;
    load_pack(a + p * kPack, x);
    load_pack(b + p * kPack, y);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      x[j] -= y[j];
      pack += x[j] * x[j];
      x[j] *= factor;
    }
    if (out) store_pack(out + p * kPack, x);
    sum[0] += double(pack);
  }
  const int64_t rest = n / kPack * kPack + first;
  if (rest < n) {
    const float d = to_float(a[rest]) - to_float(b[rest]);
    if (out) out[rest] = from_float<A>(d * factor);
    sum[0] += double(d * d);
  }
  partials.join(sum, &shared[0]);
}

// Adds up the squares for any floating dtypes and strides.
template <class C>
__global__ void __launch_bounds__(kThreads) mse_kernel(Operand a, Operand b, Space<2> space, Partials partials) {
  SHARED(double, shared, [kBlockWarps]);
  double sum[1] = {0};
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < space.numel; i += int64_t(gridDim.x) * kThreads) {
    int64_t at[2];
    space.offsets(i, at);
    const C d = a.load_floating<C>(at[0]) - b.load_floating<C>(at[1]);
    sum[0] += double(d * d);
  }
  partials.join(sum, &shared[0]);
}

// Computes out = factor (a - b), with factor = 2 sign g / n from the loss's gradient g, which only the device has.
template <class A, class B>
__global__ void __launch_bounds__(kThreads)
    mse_backward_packed(const A* a, const B* b, Operand grad, A* out, int64_t count, double sign, double n) {
  constexpr int kPack = kPackOf<A>;
  const int64_t first = int64_t(blockIdx.x) * kThreads + threadIdx.x, step = int64_t(gridDim.x) * kThreads;
  const float factor = float(sign * 2 * grad.load_floating<double>(0) / n);
  for (int64_t p = first; p < count / kPack; p += step) {
    float x[kPack], y[kPack];
    load_pack(a + p * kPack, x);
    load_pack(b + p * kPack, y);
#pragma unroll
    for (int j = 0; j < kPack; ++j) x[j] = (x[j] - y[j]) * factor;
    store_pack(out + p * kPack, x);
  }
  const int64_t rest = count / kPack * kPack + first;
  if (rest < count) out[rest] = from_float<A>((to_float(a[rest]) - to_float(b[rest])) * factor);
}

template <class C>
__global__ void __launch_bounds__(kThreads)
    mse_backward_kernel(Operand a, Operand b, Operand grad, Operand out, Space<3> space, double sign, double n) {
  const C factor = C(sign * 2 * grad.load_floating<double>(0) / n);
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < space.numel; i += int64_t(gridDim.x) * kThreads) {
    int64_t at[3];
    space.offsets(i, at);
    out.store_floating(at[0], C((a.load_floating<C>(at[1]) - b.load_floating<C>(at[2])) * factor));
  }
}

// Calls f(a's type, b's type) if there are kernels for dense ones: predictions in f32 or 16 bits, targets of the same dtype or
// f32.
template <class F>
bool for_pair(const TensorView& a, const TensorView& b, const F& f) {
  if (!aligned16(a.data) || !aligned16(b.data)) return false;
  if (b.dtype == a.dtype) return for_packed_type(a.dtype, [&](auto type) { f(type, type); });
  return b.dtype == DType::f32 && for_packed_type(a.dtype, [&](auto type) { f(type, float{}); });
}

}  // namespace

void mse(const Queue& q, const TensorView& a, const TensorView& b, Reduction reduction, const TensorView& loss,
         const LossGradient& gradient) {
  const Space<2> space(a.shape, {&a.strides, &b.strides});
  const unsigned blocks = partial_blocks(space.numel, 4 * kThreads);
  const double n = reduction == Reduction::mean ? double(space.numel) : 1.0;
  // A count of 0 divides by the weights, whose sum is 0: the mean of nothing is NaN.
  const Partials partials(q, loss, Operand(), n);
  const TensorView& out = gradient.out;
  const bool one_pass = out && out.dtype == a.dtype && aligned16(out.data);
  const bool packed = space.dense() && for_pair(a, b, [&](auto of_a, auto of_b) {
                        using A = decltype(of_a);
                        using B = decltype(of_b);
                        launch(mse_packed<A, B>, blocks, kThreads, 0, q.stream, a.as<const A>(), b.as<const B>(), space.numel,
                               partials, Operand(gradient.grad), one_pass ? out.as<A>() : nullptr);
                      });
  if (!packed) {
    const auto kernel = a.dtype == DType::f64 || b.dtype == DType::f64 ? mse_kernel<double> : mse_kernel<float>;
    launch(kernel, blocks, kThreads, 0, q.stream, Operand(a), Operand(b), space, partials);
  }
  if (out && !(packed && one_pass)) mse_backward(q, a, b, gradient.grad, reduction, 1, out);
}

void mse_backward(const Queue& q, const TensorView& a, const TensorView& b, const TensorView& grad, Reduction reduction,
                  double sign, const TensorView& out) {
  const Space<3> space(out.shape, {&out.strides, &a.strides, &b.strides});
  if (space.numel == 0) return;
  const double n = reduction == Reduction::mean ? double(space.numel) : 1.0;
  const bool packed = space.dense() && out.dtype == a.dtype && aligned16(out.data) && for_pair(a, b, [&](auto of_a, auto of_b) {
                        using A = decltype(of_a);
                        using B = decltype(of_b);
                        launch(mse_backward_packed<A, B>, blocks_for(space.numel / kPackOf<A>, kThreads), kThreads, 0, q.stream,
                               a.as<const A>(), b.as<const B>(), Operand(grad), out.as<A>(), space.numel, sign, n);
                      });
  if (packed) return;
  const bool wide = a.dtype == DType::f64 || b.dtype == DType::f64 || out.dtype == DType::f64;
  launch(wide ? mse_backward_kernel<double> : mse_backward_kernel<float>, blocks_for(space.numel, kThreads), kThreads, 0, q.stream,
         Operand(a), Operand(b), Operand(grad), Operand(out), space, sign, n);
}

}  // namespace halfstep::cuda
