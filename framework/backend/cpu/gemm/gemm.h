// SPDX-License-Identifier: Apache-2.0
// The CPU's matrix products. Plain pointers and strides, for the backend and for benchmarks that time the bare product.
#pragma once

#include <cstdint>
#include <string>

#include "framework/base/dtype.h"

namespace halfstep {
struct GemmArgs;
struct TensorView;
}  // namespace halfstep

namespace halfstep::cpu {

// c[b] = relu?( a[b] b[b] + bias ) (+ c[b] when accumulate), for b < batch. Strides in elements.
// a: [batch, m, k], b: [batch, k, n], each with a unit stride along rows or columns; c: [batch, m, n], contiguous.
struct Product {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const float* bias = nullptr;  // [n]
  int64_t a_batch = 0, a_row = 0, a_column = 1;
  int64_t b_batch = 0, b_row = 0, b_column = 1;
  DType in = DType::f32;   // of a and b: f32, f16 or bf16
  DType out = DType::f32;  // f32, or that of a and b
  bool relu = false;
  bool accumulate = false;
};

// oneDNN, with its primitives cached by shape; without oneDNN, the faster of multiply_blocks() and Eigen. Takes native dtypes.
// Accumulates in float and rounds once. While the process ends (framework/base/process_end.h), as multiply_blocks().
void multiply(const Product& p);
// The same for any 16-bit dtype and for f32, by loops of our own: widened to float in blocks, within the product.
void multiply_blocks(const Product& p);

// b laid out by oneDNN for its fastest code, as float where 16-bit numbers are not native: the bytes of that layout, or 0 if there
// is no such code; and a product with it, whose b is that memory, on one thread or shared by several.
size_t packed_bytes(int64_t k, int64_t n, DType in);
void pack_matrix(const Product& b, void* to);  // k, n, b, b_row, b_column, in
void multiply_packed(const Product& p, bool shared);
inline constexpr int64_t kPackedRows = 16;  // of a piece: fewer are slower than a thread's share of the columns

// Floating products that read each element once, bare of bias and the like: dot products, and in 16 bits a matrix by a vector and a
// column by a row. False, and nothing is done, for any other product.
bool multiply_thin(const GemmArgs& args);

// A tensor product with its bias and relu; the rest of GemmArgs is for gemm() to do.
void product(const GemmArgs& args);

// max(x, 0) in place, of rows that lie `step` elements apart; NaN stays. t: f32, f16 or bf16.
void relu_rows(DType t, void* x, int64_t rows, int64_t columns, int64_t step);

// Whether products of a 16-bit dtype run on instructions for it, which the CPU must have and be fast at; otherwise they are widened
// to float. float16 needs oneDNN 3. Of f32: true.
bool is_native(DType t);
// Whether the library has code for bf16 at all, which may be slower than that for float.
bool has_bf16_code();
// "native (AMX)", "native (AVX512-BF16)", "native (AVX512-FP16)" or "widened to float32".
std::string product_support(DType t);
// Does the library's code for float32 use AVX-512, or less? Less without a library.
bool library_has_avx512();
// What multiplies: "oneDNN 3.7.2", or that there is none.
std::string product_library();

}  // namespace halfstep::cpu
