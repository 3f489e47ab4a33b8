// SPDX-License-Identifier: Apache-2.0
// A differentiable sum over ranks.
#pragma once

#include "framework/comm/process_group.h"

namespace halfstep {

// The sum of every rank's x, on all of them; its gradient is the sum of their gradients. All ranks call it, and run backward, in
// the same order. x is floating.
Tensor sum_over_ranks(const Tensor& x, ProcessGroup& group);

}  // namespace halfstep
