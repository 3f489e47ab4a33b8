// SPDX-License-Identifier: Apache-2.0
// Computes the products of fake_cublaslt.cpp: D = epilogue(alpha op(A) op(B) + beta C), column-major.
#pragma once

#include <cstdint>

#include "cuda/blas/cublaslt.h"

namespace emu {

struct FakeLayout {
  cudaDataType_t type;
  int64_t rows, columns, ld;
  int32_t batch = 1;
  int64_t stride = 0;  // between the matrices of a batch

  int64_t elements() const { return (batch - 1) * stride + (columns - 1) * ld + rows; }  // from the first to the last element
};

struct FakeOperation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transposed_a = CUBLAS_OP_N, transposed_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void *vector = nullptr, *aux = nullptr;
  int64_t aux_ld = 0;

  bool has(uint32_t bits) const { return epilogue & bits; }
};
// Bits of cublasLtEpilogue_t.
inline constexpr uint32_t kRelu = 2, kBias = 4, kReluGradient = 8, kBiasGradient = 16, kGelu = 32, kGeluGradient = 64, kAux = 128,
                          kSumA = 256, kSumB = 512;

// A call with everything that the library reads before it returns.
struct FakeProduct {
  FakeOperation op;
  FakeLayout a, b, c, d;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  double alpha, beta;
  bool mask_at_zero = false;  // ReLU's mask is set at z = 0
  bool hides_nan = false;     // ReLU turns NaN into 0
  int block = 1;              // number of products added at once, as by tensor cores: f16, bf16 and TF32
  int splits = 1;             // number of parts of k with separate sums

  int64_t m() const { return d.rows; }
  int64_t n() const { return d.columns; }
  int64_t k() const { return op.transposed_a ? a.rows : a.columns; }
  int64_t vector_elements() const { return op.has(kSumB) ? n() : m(); }
  size_t aux_bytes() const;
};

int64_t size_of(cudaDataType_t type);

// Computes sums in float, or in double for doubles, and rounds once to D's type. Device memory must be open to the caller.
void compute(const FakeProduct& product);
void compute_ends(const FakeProduct& product);  // computes only the first and the last column of D, from A's first row

}  // namespace emu
