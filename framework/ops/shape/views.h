// SPDX-License-Identifier: Apache-2.0
// How ops make views.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Other geometry over x's memory, as a tensor of its own in the graph.
Tensor as_view(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset = 0);
// A new view of a tensor that nobody else holds: an op's result, so it may be changed in place like any other result.
Tensor as_result(const Tensor& view);

// Zeros of `full` with x at the `count` places start, start + step... of dim.
Tensor slice_backward(const Tensor& x, const Shape& full, int dim, int64_t start, int64_t count, int64_t step);

}  // namespace halfstep
