// SPDX-License-Identifier: Apache-2.0
// One cuBLASLt call for a product and the work of a single epilogue.
//
// The library is column-major: a row-major matrix is its transpose there, so c = a b is asked for as c^T = b^T a^T with no copy.
// Its matrix A is our b, its B our a, and the rows of its D are our columns, as bias epilogues require.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "cuda/blas/cublaslt.h"
#include "cuda/kernels/kernels.h"

namespace halfstep::cuda {

// All that the library's choice of code depends on. As in the library: D [m, n] = op(A) op(B), column-major.
struct MatmulKey {
  int64_t m, n, k, batch;
  int64_t a_transposed, b_transposed, a_ld, b_ld, d_ld, a_batch, b_batch;  // batch: strides
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
  void *d = nullptr, *vector = nullptr, *aux = nullptr;  // vector: a bias, or the sums that a backward epilogue writes
};

// Empty when the library's descriptors cannot say it: integers, strides, mixtures of dtypes.
std::optional<MatmulKey> matmul_key(const GemmArgs& args, size_t workspace);
MatmulPointers matmul_pointers(const GemmArgs& args);

// The library's objects for a key. Throws DeviceError with the name of a call that is refused.
class MatmulDescriptors {
 public:
  [[nodiscard]] MatmulDescriptors(const CublasLt& lt, const MatmulKey& key, const MatmulPointers& pointers);
  ~MatmulDescriptors();
  MatmulDescriptors(const MatmulDescriptors&) = delete;
  void point_to(const MatmulPointers& pointers);  // the epilogue's

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;

 private:
  void create(const MatmulKey& key);
  void release() noexcept;
  const CublasLt& lt_;
  bool has_vector_, has_aux_;
};

// c = act(a b + bias) and so on, as far as one epilogue goes: the caller has left the rest out. false, and nothing done, when
// the library has no code for it, or code whose ReLU makes a number of NaN, or whose mask says something else of z = 0 than ours:
// there the gradient is 0.
bool matmul(const Queue& q, const GemmArgs& args);

// The library's answer for a kind, and the algorithm it uses. Nothing is run.
struct MatmulFacts {
  int candidates = 0, candidate = 0;  // how many, and which is used
  int algorithm = -1;                 // CUBLASLT_ALGO_CONFIG_ID of that one
  size_t workspace = 0;               // bytes
  std::string status;                 // "success", or why there is none that can be used
};
MatmulFacts matmul_facts(const Queue& q, const GemmArgs& args);

// Times the library's candidates for `args` on its buffers, once for each kind, and keeps the fastest. c must not be accumulated
// into.
void tune_matmul(const Queue& q, const GemmArgs& args);
// Keeps the one that an earlier run found fastest. false: it is not among them now.
bool choose_candidate(const Queue& q, const GemmArgs& args, int candidate, int algorithm);

// Milliseconds of one call, by the device's clock, after one that is not counted.
double time_of(const Queue& q, const std::function<void()>& call);

}  // namespace halfstep::cuda
