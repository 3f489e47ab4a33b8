// SPDX-License-Identifier: Apache-2.0
// Layers whose ReLU is computed in the same pass, for containers that know what follows them.
#pragma once

#include "layers/module/module.h"

namespace halfstep {

// relu(module(x)) in one pass, for a Linear, a convolution, a batch normalisation or a Residual; null for other modules. The
// types are exact: a class derived from one may do something else in forward.
using WithRelu = Tensor (*)(Module& module, const Tensor& x);
WithRelu with_relu(const Module& module);

bool is_relu(const Module& module);
// Does a region of this thread have a policy of its own for an op that is computed as a part of another? Then none is.
bool policies_part_ops();

}  // namespace halfstep
