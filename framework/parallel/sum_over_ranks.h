// SPDX-License-Identifier: Apache-2.0
// A differentiable sum over ranks.
#pragma once

#include "framework/comm/process_group.h"

namespace halfstep {

// Returns on every rank the sum of all ranks' x; its gradient is the sum of their gradients. All ranks must call it, and run
// backward, in the same order. x must be floating.
Tensor sum_over_ranks(const Tensor& x, ProcessGroup& group);

}  // namespace halfstep
