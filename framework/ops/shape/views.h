// SPDX-License-Identifier: Apache-2.0
// Helpers that make views.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns another view of x's memory with its own place in the graph.
Tensor as_view(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset = 0);
// Returns a new view of a tensor that nobody else holds: an op's result, so it may be changed in place like other results.
Tensor as_result(const Tensor& view);

// Returns zeros of `full` with x at the `count` places start, start + step... of dim.
Tensor slice_backward(const Tensor& x, const Shape& full, int dim, int64_t start, int64_t count, int64_t step);

}  // namespace halfstep
