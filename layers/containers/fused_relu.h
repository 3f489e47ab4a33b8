// SPDX-License-Identifier: Apache-2.0
// Layers that compute their ReLU in the same pass.
#pragma once

#include "layers/module/module.h"

namespace halfstep {

class BatchNormNd;

// Computes relu(module(x)) in one pass.
using WithRelu = Tensor (*)(Module& module, const Tensor& x);
// Returns that function for a Linear, a convolution, a batch normalisation or a Residual; null for other modules and for classes
// derived from these, which may override forward.
WithRelu with_relu(const Module& module);

// Returns the module if it is exactly a batch normalisation, whose add_relu() computes a sum and a ReLU behind it; else null.
BatchNormNd* batch_norm_of(Module& module);

bool is_relu(const Module& module);
// Returns whether an autocast region of this thread has a policy for an op that could be fused into another.
bool policies_forbid_fusing();

}  // namespace halfstep
