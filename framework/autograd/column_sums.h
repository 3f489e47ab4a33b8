// SPDX-License-Identifier: Apache-2.0
// The sums of a gradient's columns, which travel with it: they are the gradient of a bias that was added to each row, and the
// kernel that writes a gradient has its elements at hand.
//
//   in the backward that writes it   const auto dtype = ctx.wanted_column_sums(0, dx.dtype(), device);  ...
//                                    if (dtype) leave_column_sums(dx, sums);
//   in the one that reads it         result[kBias] = take_column_sums(g);  // undefined: it computes them
//
// Nothing else needs to know of them: the sum of two gradients, a tensor that a hook returned and a converted gradient are other
// tensors, or have been written to since, and so have none.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Leaves the sums, [N], with a gradient [..., N].
void leave_column_sums(const Tensor& gradient, const Tensor& sums);
// Returns the sums that were left with the gradient, once; undefined if there are none or it has been written to since.
Tensor take_column_sums(const Tensor& gradient);

}  // namespace halfstep
