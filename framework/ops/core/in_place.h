// SPDX-License-Identifier: Apache-2.0
// Implements ops that write to their first tensor: add_, copy_, y[0] = x.
#pragma once

#include <string_view>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Gives `x` the value of `result` and, when recording, its history. If x is a view, its base gets the history too: its gradient
// flows to `result` at the view's places, and to the old values elsewhere. Throws if x is a leaf that requires grad or a view of
// one, if the view is stale, or if the shape or category of the result does not fit.
const Tensor& assign_in_place(const Tensor& x, const Tensor& result, std::string_view op);
// Throws what assign_in_place would throw for a result of this shape and dtype. records: whether an operand other than x requires
// grad. Returns whether the write must be recorded.
bool check_in_place(const Tensor& x, const Shape& result_shape, DType result_dtype, bool records, std::string_view op);
// Throws ValueError if elements of x share memory: an expanded tensor, or overlapping windows.
void check_apart(const Tensor& x, std::string_view op);

}  // namespace halfstep
