// SPDX-License-Identifier: Apache-2.0
// Sums at places that depend on data, in shared memory without atomic additions: in the order of the threads, so the same bits on
// every run.
#pragma once

#include "cuda/kernels/elementwise/elementwise.cuh"

namespace halfstep::cuda {

// Places that a block sums at a time. `owner`: the thread whose turn it is at a place.
inline constexpr int kTile = 2048;
inline constexpr int kNobody = 0x7fffffff;

// Clears the sums. A thread has the same places as when it reads the sums, so neither needs a barrier: add_in_order begins and
// ends with one.
template <class C>
__device__ inline void clear_tile(C* sum, int* owner) {
  for (int i = int(threadIdx.x); i < kTile; i += kThreads) {
    sum[i] = 0;
    owner[i] = kNobody;
  }
}

// Computes sum[place] += value, in thread order for equal places; place < 0 adds nothing. All threads of the block must call it.
template <class C>
__device__ inline void add_in_order(C* sum, int* owner, int place, C value) {
  bool waits = place >= 0;
  while (__syncthreads_or(waits)) {
    if (waits) atomicMin(&owner[place], int(threadIdx.x));
    __syncthreads();
    const bool mine = waits && owner[place] == int(threadIdx.x);
    __syncthreads();
    if (mine) {
      sum[place] += value;
      owner[place] = kNobody;
      waits = false;
    }
  }
}

}  // namespace halfstep::cuda
