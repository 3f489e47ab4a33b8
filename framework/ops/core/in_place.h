// SPDX-License-Identifier: Apache-2.0
// Ops that write into their first tensor: add_, copy_, y[0] = x.
#pragma once

#include <string_view>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Gives `x` the value of `result` and, when recording, its history. Where x is a view, the tensor that it views gets the history
// too: its gradient goes to `result` at the places of the view and to its values before elsewhere.
// Throws when x is a leaf that requires grad or a view of one, when the view has become stale, or when the result's shape or
// category does not fit.
const Tensor& assign_in_place(const Tensor& x, const Tensor& result, std::string_view op);
// The checks alone, without a result: true when the operation must be recorded.
bool check_in_place(const Tensor& x, const Shape& result_shape, DType result_dtype, bool records, std::string_view op);

}  // namespace halfstep
