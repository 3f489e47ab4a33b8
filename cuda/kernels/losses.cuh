// Sums of losses: a partial for each block, whose number the shape alone fixes, then the partials in a fixed order.
#pragma once

#include "cuda/kernels/rows.cuh"

namespace halfstep::cuda {

inline constexpr int64_t kMostPartials = 1024;  // blocks
inline unsigned partial_blocks(int64_t items, int64_t each) {
  const int64_t wanted = (items + each - 1) / each;
  return unsigned(wanted < 1 ? 1 : wanted < kMostPartials ? wanted : kMostPartials);
}

// From the scratch memory, [blocks][each]: the losses and, where each is 2, the weights.
// loss = sum of losses / count, or / sum of weights for a count of 0; total = sum of weights. Both may be absent.
void finish_loss(const Queue& q, unsigned blocks, int each, const Operand& loss, const Operand& total, double count);

}  // namespace halfstep::cuda
