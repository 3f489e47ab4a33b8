// SPDX-License-Identifier: Apache-2.0
// Sums of losses: one partial sum per block, whose number depends only on the shape; then the partials in a fixed order, in one
// launch.
#pragma once

#include "cuda/kernels/reduce/rows.cuh"

namespace halfstep::cuda {

inline constexpr int64_t kMostLossBlocks = 1024;  // each writes one partial result
// Returns the number of blocks for these items, of which a block takes `each` or more.
inline unsigned partial_blocks(int64_t items, int64_t each) {
  const int64_t wanted = (items + each - 1) / each;
  return unsigned(wanted < 1 ? 1 : wanted < kMostLossBlocks ? wanted : kMostLossBlocks);
}

// Joins a loss's blocks: each writes its sums, of losses and, with two, of weights. The last block joins all of them, in the
// blocks' order: loss = sum of losses / count, or / sum of weights for a count of 0; total = sum of weights. Both may be absent.
struct Partials {
  double* values;  // [gridDim.x][Sums]
  uint32_t* counter;
  Operand loss, total;
  double count;

  Partials(const Queue& q, const Operand& loss, const Operand& total, double count)
      : values(q.scratch), counter(q.counters), loss(loss), total(total), count(count) {}

  // All threads of the block must call it, once; `shared` holds kBlockWarps values.
  template <int Sums>
  __device__ void join(double (&sums)[Sums], double* shared) const {
    SHARED(bool, last, [1]);
#pragma unroll
    for (double& sum : sums) sum = block_join<SumJoin>(sum, shared);
    if (threadIdx.x == 0) {
#pragma unroll
      for (int k = 0; k < Sums; ++k) values[blockIdx.x * Sums + k] = sums[k];
      last[0] = is_last_block(counter, gridDim.x);
    }
    __syncthreads();
    if (!last[0]) return;
    double totals[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < Sums; ++k) {
#pragma unroll 1
      for (int b = int(threadIdx.x); b < int(gridDim.x); b += kThreads) totals[k] += values[b * Sums + k];
      totals[k] = block_join<SumJoin>(totals[k], shared);
    }
    if (threadIdx.x != 0) return;
    if (total.data) total.store_floating(0, totals[1]);
    if (loss.data) loss.store_floating(0, totals[0] / (count == 0 ? totals[1] : count));
  }
};

}  // namespace halfstep::cuda
