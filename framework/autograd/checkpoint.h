// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: memory for time (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
#pragma once

#include <functional>

#include "framework/tensor/tensor.h"

namespace halfstep {

// f(x), keeping x alone: backward computes f again and goes through that. f sees the same autocast state and draws the same random
// numbers both times, whatever region or generator position backward runs under. `parameters`: the tensors besides x that f
// uses and that shall have gradients, e.g. net.parameters(); they must not change between forward and backward.
//   y = checkpoint([&](const Tensor& t) { return block(t); }, x, block.parameters());
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, const Tensors& parameters);

}  // namespace halfstep
