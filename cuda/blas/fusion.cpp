// SPDX-License-Identifier: Apache-2.0
#include "cuda/blas/fusion.h"

namespace halfstep::cuda {
namespace {

struct Row {
  DType dtype;
  int least_capability;
  Fusion fusion;
};
// The first matching row counts. If the library lacks a kernel of the GPU's own generation for an epilogue, it uses an older and
// slower one, and the fused product is slower than the unfused pair.
constexpr Row kTable[] = {
    // Measured on an H100 with cuBLASLt 13.1 at 4096 x 4096: a derivative with a sum is a product plus a kernel of 112 us. With
    // halfstep's kernels the step of 3 layers is 0.14 ms shorter. Sums of rows have a native Hopper kernel for f16 only.
    {DType::f16, 90, {.gelu = true, .derivative = false, .row_sum = true}},
    {DType::bf16, 90, {.gelu = true, .derivative = false, .row_sum = false}},
    // On Ampere and before, others measured fused GELU and sums as slower (llm.c; NVIDIA's samples, issue 90).
    {DType::f16, 0, {.gelu = false, .derivative = false, .row_sum = false}},
    {DType::bf16, 0, {.gelu = false, .derivative = false, .row_sum = false}},
    // These products take far more time than any pass over their results.
    {DType::f32, 0, {.gelu = false, .derivative = true, .row_sum = true}},
    {DType::f64, 0, {.gelu = false, .derivative = true, .row_sum = true}},
};

}  // namespace

Fusion default_fusion(DType dtype, int capability) {
  for (const Row& row : kTable) {
    if (row.dtype == dtype && capability >= row.least_capability) return row.fusion;
  }
  return {};
}

}  // namespace halfstep::cuda
