// SPDX-License-Identifier: Apache-2.0
// Parts of a product c [M, N] = a b besides bias and ReLU: GELU, c = act'(aux) * (a b) as the gradient of an activation, and the
// sums over rows or columns that are gradients of biases.
#include "framework/backend/cpu/gemm/gemm.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/parallel.h"

namespace halfstep::cpu {
namespace {

// Computes out[j] = sum of a matrix over its first dimension.
void sum_rows(const TensorView& x, const TensorView& out) {
  reduce(Reduce::sum, x, {out.data, out.dtype, {1, x.shape[1]}, {x.shape[1] * out.strides[0], out.strides[0]}});
}

HS_CLONES void relu_row(float* x, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] <= 0 ? 0.0f : x[i];
}
HS_CLONES void relu_row(uint16_t* x, int64_t n, uint16_t infinity) {  // of bfloat16 or float16
  constexpr uint16_t kMagnitude = 0x7fff;
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] > kMagnitude && (x[i] & kMagnitude) <= infinity ? 0 : x[i];
}

}  // namespace

void relu_rows(DType t, void* x, int64_t rows, int64_t columns, int64_t step) {
  for (int64_t i = 0; i < rows; ++i) {
    if (t == DType::f32)
      relu_row(static_cast<float*>(x) + i * step, columns);
    else
      relu_row(static_cast<uint16_t*>(x) + i * step, columns, t == DType::bf16 ? 0x7f80 : 0x7c00);
  }
}

// Stores z in aux's dtype first, so that the result equals that of a separate product and activation.
void gemm_then_gelu(const GemmArgs& g) {
  GemmArgs bare = g;
  bare.activation = Activation::none;
  if (g.aux) bare.c = g.aux;
  gemm_with_bias(bare);
  unary(Unary::gelu_tanh, bare.c, g.c);
}

void gemm_then_derivative(const GemmArgs& g) {
  GemmArgs bare = g;
  bare.activation = Activation::none;
  gemm_with_bias(bare);
  unary_backward(g.activation == Activation::relu ? Unary::relu : Unary::gelu_tanh, g.c, g.aux, g.c);
}

void write_gemm_sums(const GemmArgs& g) {
  if (g.column_sum) sum_rows(g.c, g.column_sum);
  if (g.a_row_sum) { sum_rows({g.a.data, g.a.dtype, {g.a.shape[1], g.a.shape[0]}, {g.a.strides[1], g.a.strides[0]}}, g.a_row_sum); }
  if (g.b_column_sum) sum_rows(g.b, g.b_column_sum);
}

}  // namespace halfstep::cpu
