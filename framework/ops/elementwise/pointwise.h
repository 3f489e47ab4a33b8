// SPDX-License-Identifier: Apache-2.0
// The rows of framework/math/pointwise.def as ops: one tensor from one to three that broadcast, and two numbers. Families
// build their public functions on these.
#pragma once

#include "framework/math/op_kinds.h"
#include "framework/ops/core/call.h"

namespace halfstep {

// The registry's entry of the op that the row belongs to.
const OpInfo& info_of(Pointwise row);

// in: as many as the row has. The result has the dtype that the inputs promote to (integers: float32) unless `dtype` is given;
// either way it is computed in float32 (float64) and rounded once.
Tensor call_pointwise(Pointwise row, Tensors in, double p = 0, double q = 0, std::optional<DType> dtype = {});
// Gives in[0] the result.
void pointwise_in_place(Pointwise row, const Tensors& in, double p = 0, double q = 0);

}  // namespace halfstep
