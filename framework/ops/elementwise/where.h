// SPDX-License-Identifier: Apache-2.0
// Bounds and tests on values, besides where, clamp, isnan and isfinite of ops.h.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Bounds that are tensors broadcast and promote; an undefined one is no bound. A lower bound above the upper one: the upper.
Tensor clamp(const Tensor& x, const Tensor& lo, const Tensor& hi);
Tensor clamp_min(const Tensor& x, Number lo);
Tensor clamp_min(const Tensor& x, const Tensor& lo);
Tensor clamp_max(const Tensor& x, Number hi);
Tensor clamp_max(const Tensor& x, const Tensor& hi);
Tensor isinf(const Tensor& x);  // bool
// NaN, +inf and -inf replaced; by default with 0 and the ends of the dtype's range. No gradient passes there.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {});

}  // namespace halfstep
