// SPDX-License-Identifier: Apache-2.0
// The rows of framework/math/pointwise.def as ops: a tensor from one to three that broadcast, and two numbers. Families build
// their public functions on these.
#pragma once

#include "framework/math/op_kinds.h"
#include "framework/ops/core/call.h"

namespace halfstep {

// Returns the registry's entry of the row's op.
const OpInfo& info_of(Pointwise row);

// Computes a row. in: as many tensors as the row has. The result has the promoted dtype of the inputs (integers: float32) unless
// `dtype` is given; in both cases it is computed in float32 (float64) and rounded once.
Tensor call_pointwise(Pointwise row, Tensors in, double p = 0, double q = 0, std::optional<DType> dtype = {});
// Writes the result into in[0], as assign_in_place does; the shape and the category of the dtype must fit.
void pointwise_in_place(Pointwise row, const Tensors& in, double p = 0, double q = 0);

}  // namespace halfstep
