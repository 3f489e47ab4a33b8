// SPDX-License-Identifier: Apache-2.0
// Helpers for ops over dimensions.
#pragma once

#include "framework/backend/backend.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct ReducedShapes {
  Shape kept;     // 1 where reduced
  Shape dropped;  // without the reduced dimensions
};
// Returns the shapes of a reduction. dims {}: all. Throws for a dimension out of range or given twice.
ReducedShapes reduced(const Shape& shape, const Dims& dims, std::string_view op);
// Returns `out`, which has the kept shape, in the shape that keepdim means.
Tensor with_keepdim(const Tensor& out, const ReducedShapes& shapes, bool keepdim);
// Returns Backend::reduce of x in a new tensor of this dtype.
Tensor run_reduce(Reduce op, const Tensor& x, const ReducedShapes& shapes, bool keepdim, DType dtype);

// Returns the dtype of a sum or product of `x`: integers and bool become int64.
DType sum_dtype(const Tensor& x, const std::optional<DType>& dtype);
// Converts x before a sum, unless converting the result is the same.
Tensor before_sum(const Tensor& x, std::optional<DType> dtype);

// Returns the gradient of an order statistic of x over `dims`: `grad` shared by the elements that equal `value`. Both have the
// kept shape.
Tensor share_gradient(const Tensor& x, const Tensor& value, const Tensor& grad, const Dims& dims);

// Converts 16-bit floats to float32.
inline Tensor widened(const Tensor& x) { return x.to(widened(x.dtype())); }

}  // namespace halfstep
