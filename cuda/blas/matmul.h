// SPDX-License-Identifier: Apache-2.0
// One cuBLASLt call: a product and the work of a single epilogue.
//
// The library is column-major: a row-major matrix is its transpose there, so c = a b is requested as c^T = b^T a^T without a copy.
// Its matrix A is our b, its B our a, and the rows of its D are our columns, as bias epilogues require.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "cuda/blas/cublaslt.h"
#include "cuda/kernels/kernels.h"

namespace halfstep::cuda {

// Everything on which the library's choice of code depends. As in the library: D [m, n] = op(A) op(B), column-major.
struct MatmulKey {
  int64_t m, n, k, batch;
  int64_t a_transposed, b_transposed, a_ld, b_ld, d_ld, a_batch, b_batch;  // batch: strides between matrices
  int64_t in, out;                                                         // cudaDataType
  int64_t compute, epilogue;
  int64_t accumulate;
  int64_t aux_ld;                                              // in elements; of a ReLU mask, bits
  int64_t a_align, b_align, d_align, vector_align, aux_align;  // bytes, at most 256
  int64_t workspace;                                           // bytes

  bool operator==(const MatmulKey&) const = default;
};
// The memory of one call.
struct MatmulPointers {
  const void *a = nullptr, *b = nullptr;
  void *d = nullptr, *vector = nullptr, *aux = nullptr;  // vector: a bias, or the sums written by a backward epilogue
};

// Returns the key, or nothing if the library's descriptors cannot express it: integers, strides, mixed dtypes.
std::optional<MatmulKey> matmul_key(const GemmArgs& args, size_t workspace);
MatmulPointers matmul_pointers(const GemmArgs& args);

// The library's objects for a key. Throws DeviceError with the name of a refused call.
class MatmulDescriptors {
 public:
  [[nodiscard]] MatmulDescriptors(const CublasLt& lt, const MatmulKey& key, const MatmulPointers& pointers);
  ~MatmulDescriptors();
  MatmulDescriptors(const MatmulDescriptors&) = delete;
  void point_to(const MatmulPointers& pointers);  // pointers of the epilogue

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;

 private:
  void create(const MatmulKey& key);
  void release() noexcept;
  const CublasLt& lt_;
  bool has_vector_, has_aux_;
};

// Computes a product of GemmArgs whose extras are at most those of one epilogue, such as c = act(a b + bias). Returns false and
// does nothing if the library has no code for it, or code whose ReLU turns NaN into a number, or whose mask differs from ours at z
// = 0, where the gradient is 0.
bool matmul(const Queue& q, const GemmArgs& args);

// The library's answer for a kind of product, and its algorithm.
struct MatmulFacts {
  int candidates = 0, candidate = 0;  // their number, and the one in use
  int algorithm = -1;                 // CUBLASLT_ALGO_CONFIG_ID of the one in use
  size_t workspace = 0;               // bytes
  std::string status;                 // "success", or why none can be used
};
// Returns the answer without computing a product.
MatmulFacts matmul_facts(const Queue& q, const GemmArgs& args);

// Times the library's candidates for `args` on its buffers, once for each kind, and keeps the fastest. `accumulate` must be false.
void tune_matmul(const Queue& q, const GemmArgs& args);
// Keeps the candidate that was fastest in an earlier run. Returns false if it is not among the current ones.
bool choose_candidate(const Queue& q, const GemmArgs& args, int candidate, int algorithm);

// Returns the milliseconds of one call by the device's clock, after one warm-up call.
double time_of(const Queue& q, const std::function<void()>& call);

}  // namespace halfstep::cuda
