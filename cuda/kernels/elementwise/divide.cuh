// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/gpu.cuh"

namespace halfstep::cuda {

// Returns a / b for a >= 0, b > 0: in 32 bits if they fit, else through double with a correction. Much less code than a 64-bit
// division.
__device__ inline int64_t quotient(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) return uint32_t(a) / uint32_t(b);
  int64_t q = int64_t(double(a) / double(b));
  while (q * b > a) --q;
  while ((q + 1) * b <= a) ++q;
  return q;
}

}  // namespace halfstep::cuda
