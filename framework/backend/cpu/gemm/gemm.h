// SPDX-License-Identifier: Apache-2.0
// The CPU's matrix products, on plain pointers and strides: for the backend, and for benchmarks that time the bare product.
#pragma once

#include <cstdint>
#include <string>

#include "framework/base/dtype.h"

namespace halfstep {
struct GemmArgs;
struct TensorView;
}  // namespace halfstep

namespace halfstep::cpu {

// c[b] = relu?( a[b] b[b] + bias ) (+ c[b] if accumulate), for b < batch. Strides count elements. a: [batch, m, k], b: [batch, k,
// n], each with a unit stride along rows or columns; c: [batch, m, n], contiguous.
struct GemmProblem {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const float* bias = nullptr;  // [n]
  int64_t a_batch = 0, a_row = 0, a_column = 1;
  int64_t b_batch = 0, b_row = 0, b_column = 1;
  DType in = DType::f32;   // of a and b: f32, f16 or bf16
  DType out = DType::f32;  // f32, or the dtype of a and b
  bool relu = false;
  bool accumulate = false;
};

// Multiplies by oneDNN, with primitives cached by shape; without oneDNN, or where it has only plain loops for this CPU, by
// run_gemm_alone(). Takes native dtypes, accumulates in float, and rounds once. While the process ends
// (framework/base/process_end.h), works as run_gemm_blocks().
void run_gemm(const GemmProblem& p);
// Multiplies any 16-bit dtype or f32 by loops of our own, which widen blocks to float within the product, or multiply bf16 by the
// CPU's instruction for it (own_bf16_code()).
void run_gemm_blocks(const GemmProblem& p);
// Multiplies f32 without the library: by run_gemm_blocks() or Eigen, whichever is faster.
void run_gemm_alone(const GemmProblem& p);

// Pack b for oneDNN's fastest code, as float unless 16-bit numbers are native. packed_bytes returns the size of that layout, or 0
// if there is no such code; run_gemm_packed takes it as b, and runs on one thread or shared by several.
size_t packed_bytes(int64_t k, int64_t n, DType in);
void pack_matrix(const GemmProblem& b, void* to);  // k, n, b, b_row, b_column, in
void run_gemm_packed(const GemmProblem& p, bool shared);
inline constexpr int64_t kPackedRows = 16;  // least rows of a piece: with fewer, sharing the columns among threads is faster

// Computes products that read each element once and have no bias or the like: dot products, and in 16 bits matrix by vector and
// column by row. Returns false and does nothing for other products.
bool gemm_thin(const GemmArgs& args);

// Compute parts of the kernel gemm: a tensor product with bias and relu; the same, then GELU or an activation's derivative; and the
// sums that GemmArgs requests besides.
void gemm_with_bias(const GemmArgs& args);
void gemm_then_gelu(const GemmArgs& args);
void gemm_then_derivative(const GemmArgs& args);
void write_gemm_sums(const GemmArgs& args);

// Applies max(x, 0) in place to rows that are `step` elements apart; NaN stays. t: f32, f16 or bf16.
void relu_rows(DType t, void* x, int64_t rows, int64_t columns, int64_t step);

// Returns whether the library's products of a 16-bit dtype use the CPU's instructions for it, which must exist and be fast;
// otherwise run_gemm_blocks() computes them. float16 needs oneDNN 3. True for f32.
bool is_native(DType t);
// Returns whether the library has any code for bf16, which may be slower than its float code.
bool has_bf16_code();
// Returns whether loops of our own multiply bf16 by an instruction: BFMMLA on aarch64.
bool own_bf16_code();
// Returns "native (AMX)", "native (AVX512-BF16)", "native (AVX512-FP16)", "native (BFMMLA)" or "widened to float32".
std::string product_support(DType t);
// Returns whether the library's float32 code uses AVX-512. False without a library.
bool library_has_avx512();
// Returns the library's name, such as "oneDNN 3.7.2", or that there is none.
std::string product_library();

}  // namespace halfstep::cpu
