// SPDX-License-Identifier: Apache-2.0
// The gradients of a list of parameters, as kernels want them.
#pragma once

#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

// The gradients of those `params` that have one, safe to write element by element: one whose elements overlap (an expanded
// tensor), or does not lie as its parameter does where `contiguous`, is first replaced in its parameter by a dense copy. `raw`: in
// the dtype that backward left them in.
Tensors gradients_of(const std::vector<Tensor>& params, bool contiguous = false, bool raw = false);

std::vector<TensorView> views_of(const Tensors& tensors);

}  // namespace halfstep
