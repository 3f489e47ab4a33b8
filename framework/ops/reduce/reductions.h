// SPDX-License-Identifier: Apache-2.0
// What ops over dimensions share.
#pragma once

#include "framework/backend/backend.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct ReducedShapes {
  Shape kept;     // 1 where reduced
  Shape dropped;  // without the reduced dimensions
};
// dims {}: all. Throws for a dimension out of range or given twice.
ReducedShapes reduced(const Shape& shape, const Dims& dims, std::string_view op);
// `out`, which has the kept shape, as the caller wants to see it.
Tensor shown(const Tensor& out, const ReducedShapes& shapes, bool keepdim);
// Backend::reduce into a new tensor.
Tensor run_reduce(Reduce op, const Tensor& x, const ReducedShapes& shapes, bool keepdim, DType dtype);

// What a sum or product of `x` gives: integers and bool go to int64.
DType sum_dtype(const Tensor& x, const std::optional<DType>& dtype);
// x converted before it is summed, where summing in its own dtype and converting the result is not the same.
Tensor before_sum(const Tensor& x, std::optional<DType> dtype);

// The gradient of an order statistic of x over `dims`: `grad` shared by the elements that equal `value`. Both have the kept shape.
Tensor share_gradient(const Tensor& x, const Tensor& value, const Tensor& grad, const Dims& dims);

// 16-bit floats as float32.
inline Tensor widened(const Tensor& x) { return x.to(widened(x.dtype())); }

}  // namespace halfstep
