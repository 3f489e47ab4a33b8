// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels' launchers, a free function for each row of framework/backend/kernels.def.
// They return when the work is queued on the stream. Results do not depend on the device's size, and are the same bits on every
// run.
#pragma once

#include "framework/backend/backend.h"

struct CUstream_st;

namespace halfstep::cuda {

// The stream and scratch memory of launches. One call at a time uses a queue.
struct Queue {
  CUstream_st* stream = nullptr;
  double* scratch = nullptr;              // kScratchBytes of device memory for exclusive use
  uint32_t* counters = nullptr;           // kCounters in device memory, in which a launch's blocks count; 0 between launches
  const uint64_t* random_base = nullptr;  // device memory; if set, added to the offset of every random draw
  bool recording = false;                 // whether launches are being recorded for replay: nothing may wait, measure or allocate
};
inline constexpr size_t kScratchBytes = size_t(4) << 20;
inline constexpr int64_t kScratchDoubles = int64_t(kScratchBytes / sizeof(double));  // partial results that fit there
// Losses use the first counter, optimizers those from kStepCounters on: launches of different kinds must not share one.
inline constexpr size_t kCounters = 8, kStepCounters = 4;

// In device memory: the first bad index or target found by a check, for the host to report.
struct IndexFault {
  static constexpr int32_t kNone = 0, kTarget = 1, kIndex = 2;
  int32_t kind;  // one of these
  int32_t pad;   // unused
  int64_t position, value, size;
};

#define HS_UNPACK(...) __VA_ARGS__
#define HS_KERNEL(name, parameters, arguments) PlainFunction<void(const Queue&, HS_UNPACK parameters)>::type name;
#include "framework/backend/kernels.def"
#undef HS_UNPACK

// Record the first bad element in `fault` unless it already holds one.
void check_targets(const Queue& q, const TensorView& target, int64_t classes, int64_t ignore_index, IndexFault* fault);
void check_indices(const Queue& q, const TensorView& index, int64_t size, IndexFault* fault);

// ---- products for which cuBLASLt has no code or is missing (cuda/blas/gemm.cpp decides). c = a b + bias (+ c if accumulate): one
// thread per element. Shapes and dtypes as in GemmArgs; bias may be empty.
void plain_product(const Queue& q, const TensorView& a, const TensorView& b, const TensorView& bias, const TensorView& c,
                   bool accumulate);
// Computes out = act(x + bias), and aux if given, in the layout activation_aux of cuda/blas/gemm.h. x: [M, N], dense rows at any
// distance, of out's floating dtype and strides; may be out. Without out, writes only aux.
void bias_activation(const Queue& q, const TensorView& x, const TensorView& bias, Activation activation, const TensorView& aux,
                     const TensorView& out);
// Computes out = act'(aux) * grad, with aux in that layout. May be in place.
void activation_derivative(const Queue& q, const TensorView& grad, Activation activation, const TensorView& aux,
                           const TensorView& out);

}  // namespace halfstep::cuda
