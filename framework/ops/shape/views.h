// SPDX-License-Identifier: Apache-2.0
// Helpers that make views, and the gradient of a slice.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns another view of x's memory with its own place in the graph.
Tensor as_view(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset = 0);
// Marks `view`, of a tensor that nobody else holds, as no view, and returns it: an op's result may be changed in place like others.
Tensor as_result(const Tensor& view);

// Returns zeros of `full` with x at the `count` places start, start + step... of dim.
Tensor slice_backward(const Tensor& x, const Shape& full, int dim, int64_t start, int64_t count, int64_t step);

}  // namespace halfstep
