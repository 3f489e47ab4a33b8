// SPDX-License-Identifier: Apache-2.0
// Layers that compute their ReLU in the same pass.
#pragma once

#include "layers/module/module.h"

namespace halfstep {

// Computes relu(module(x)) in one pass, for a Linear, a convolution, a batch normalisation or a Residual; null for other modules
// and for classes derived from these, which may override forward.
using WithRelu = Tensor (*)(Module& module, const Tensor& x);
WithRelu with_relu(const Module& module);

bool is_relu(const Module& module);
// Returns whether a region of this thread has a policy for an op that could be fused into another; then nothing is fused.
bool policies_part_ops();

}  // namespace halfstep
