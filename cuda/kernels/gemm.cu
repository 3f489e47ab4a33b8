// SPDX-License-Identifier: Apache-2.0
// Matrix products c [M, N] = a [M, K] b [K, N] + bias (+ c), batched or not, one thread per element of c: for operands that
// cuBLASLt does not take (integers, mixed dtypes) and for the emulator.
#include "cuda/kernels/elementwise/elementwise.cuh"

namespace halfstep::cuda {
namespace {

// Sizes, and strides in elements; count: elements of c; bias: the stride of bias.
struct ProductShape {
  int64_t rows, columns, inner, count;
  int64_t a_batch, a_row, a_column, b_batch, b_row, b_column, bias;
};

// Returns element i of x. T: its type; void: any integer type.
template <class C, class T>
__device__ inline C element(const Operand& x, int64_t i) {
  if constexpr (std::is_void_v<T>)
    return x.load<C>(i);
  else
    return C(to_float(x.at<T>(i)));
}

template <class C, class T>
__global__ void __launch_bounds__(kThreads)
    product_kernel(Operand a, Operand b, Operand bias, Operand c, ProductShape s, bool accumulate) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < s.count; i += step) {
    const int64_t line = i / s.columns, column = i - line * s.columns, batch = line / s.rows, row = line - batch * s.rows;
    int64_t left = batch * s.a_batch + row * s.a_row, right = batch * s.b_batch + column * s.b_column;
    C sum = 0;
    for (int64_t k = 0; k < s.inner; ++k) {
      sum = m::add(sum, m::mul(element<C, T>(a, left), element<C, T>(b, right)));
      left += s.a_column;
      right += s.b_row;
    }
    if (bias.data) sum = m::add(sum, bias.load<C>(column * s.bias));
    if (accumulate) sum = m::add(sum, c.load<C>(i));
    c.store(i, sum);
  }
}

}  // namespace

void plain_product(const Queue& q, const TensorView& a, const TensorView& b, const TensorView& bias, const TensorView& c,
                   bool accumulate) {
  const int r = a.shape.size();
  const bool batched = r == 3;
  const ProductShape s{.rows = a.shape[r - 2],
                       .columns = b.shape[r - 1],
                       .inner = a.shape[r - 1],
                       .count = c.numel(),
                       .a_batch = batched ? a.strides[0] : 0,
                       .a_row = a.strides[r - 2],
                       .a_column = a.strides[r - 1],
                       .b_batch = batched ? b.strides[0] : 0,
                       .b_row = b.strides[r - 2],
                       .b_column = b.strides[r - 1],
                       .bias = bias ? bias.strides[0] : 0};
  if (s.count == 0) return;
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(s.count, kThreads), kThreads, 0, q.stream, Operand(a), Operand(b), Operand(bias), Operand(c), s,
           accumulate);
  };
  switch (a.dtype) {
    case DType::f16: return run(product_kernel<float, __half>);
    case DType::bf16: return run(product_kernel<float, __nv_bfloat16>);
    case DType::f32: return run(product_kernel<float, float>);
    case DType::f64: return run(product_kernel<double, double>);
    default: return run(product_kernel<int64_t, void>);
  }
}

}  // namespace halfstep::cuda
