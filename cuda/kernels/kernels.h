// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels' launchers, a free function for each row of framework/backend/kernels.def.
// They return when the work is queued on the stream. Results do not depend on the device's size: the same bits on every run.
#pragma once

#include "framework/backend/backend.h"

struct CUstream_st;

namespace halfstep::cuda {

// Where to work. One call at a time uses a queue.
struct Queue {
  CUstream_st* stream = nullptr;
  double* scratch = nullptr;               // kScratchBytes of device memory that nothing else uses
  uint32_t* counters = nullptr;            // kCounters in device memory, where a launch's blocks count; 0 between launches
  const uint64_t* random_base = nullptr;   // device memory; when set, added to the offset of every random draw
  bool recording = false;                  // launches are being recorded for replay: nothing may wait, measure or allocate
};
inline constexpr size_t kScratchBytes = size_t(4) << 20;
// Of losses the first, of optimizers those from kStepCounters on: launches of different kinds may not count in the same.
inline constexpr size_t kCounters = 8, kStepCounters = 4;

// In device memory: the first bad index or target met by a check, for the host to report.
struct IndexFault {
  int32_t kind;       // 0: none, 1: target, 2: index
  int32_t pad;
  int64_t position, value, size;
};

#define HS_UNPACK(...) __VA_ARGS__
#define HS_KERNEL(name, parameters, arguments) PlainFunction<void(const Queue&, HS_UNPACK parameters)>::type name;
#include "framework/backend/kernels.def"
#undef HS_UNPACK

// Records the first bad element in `fault` unless it already holds one.
void check_targets(const Queue& q, const TensorView& target, int64_t classes, int64_t ignore_index, IndexFault* fault);
void check_indices(const Queue& q, const TensorView& index, int64_t size, IndexFault* fault);

// ---- products, where cuBLASLt has no code or is not there (cuda/blas/gemm.cpp decides)
// c = a b + bias (+ c when accumulate): one thread an element. Shapes and dtypes as GemmArgs's; bias may be empty.
void plain_product(const Queue& q, const TensorView& a, const TensorView& b, const TensorView& bias, const TensorView& c,
                   bool accumulate);
// out = act(x + bias), and aux where given. x: [M, N], contiguous, of out's floating dtype; may be out. Without out aux alone is
// written. It is as activation_aux of cuda/blas/gemm.h has it.
void bias_activation(const Queue& q, const TensorView& x, const TensorView& bias, Activation activation, const TensorView& aux,
                     const TensorView& out);
// out = act'(aux) * grad. May be in place.
void activation_derivative(const Queue& q, const TensorView& grad, Activation activation, const TensorView& aux,
                           const TensorView& out);

}  // namespace halfstep::cuda
