// SPDX-License-Identifier: Apache-2.0
// Functions of square matrices [..., N, N]. det and inverse are computed on the host, in float32 or float64, also for a tensor of a
// GPU, which waits for them. autocast: f32
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

Tensor trace(const Tensor& x);    // the sum of the diagonal, of a matrix [N, M]
Tensor det(const Tensor& x);      // [...]; also registered as linalg_det
Tensor inverse(const Tensor& x);  // also registered as linalg_inv. Throws ValueError for a singular matrix

}  // namespace halfstep
