// SPDX-License-Identifier: Apache-2.0
// Bounds and tests of values; ops.h has where, clamp, isnan and isfinite.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Clamps with tensor bounds, which broadcast and promote; an undefined one is no bound. If the lower bound exceeds the upper one,
// the result is the upper.
Tensor clamp(const Tensor& x, const Tensor& lo, const Tensor& hi);
Tensor clamp_min(const Tensor& x, Number lo);
Tensor clamp_min(const Tensor& x, const Tensor& lo);
Tensor clamp_max(const Tensor& x, Number hi);
Tensor clamp_max(const Tensor& x, const Tensor& hi);
Tensor isinf(const Tensor& x);  // bool
// Replaces NaN, +inf and -inf; by default by 0 and the ends of the dtype's range. These places get no gradient.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {});

}  // namespace halfstep
