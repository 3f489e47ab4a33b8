// SPDX-License-Identifier: Apache-2.0
// Reads the rows of elementwise.def and pointwise.def on tensors: each formula and each gradient in differentiable ops. Recorded
// backward passes use the gradients, and traces the formulas (framework/backend/graph_trace.h).
#pragma once

#include "framework/math/op_kinds.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Return the row of x, and x's gradient; saved: x or y, as the row says.
Tensor unary_formula(Unary op, const Tensor& x);
Tensor unary_gradient(Unary op, const Tensor& g, const Tensor& saved);
// Returns the gradient of relu's input from its result y, by one kernel unless recorded. For ops that end with a ReLU.
Tensor relu_gradient(const Tensor& g, const Tensor& y);
// Does the same for g + h, two gradients in one dtype, in one pass, and may write to one that has no other owner. Not recorded.
Tensor relu_gradient_of_sum(const Tensor& g, const Tensor& h, const Tensor& y);
// Return the row of a and b, and the gradient of a (input 0) or b (input 1).
Tensor binary_formula(Binary op, const Tensor& a, const Tensor& b);
Tensor binary_gradient(Binary op, int input, const Tensor& g, const Tensor& a, const Tensor& b);
// Return the row of `in`, its one to three tensors, with the numbers p and q, and the gradient of in[input], for which 16-bit
// operands are read as float32.
Tensor pointwise_formula(Pointwise row, const Tensors& in, double p, double q);
Tensor pointwise_gradient(Pointwise row, int input, const Tensor& g, const Tensors& in, double p, double q);

}  // namespace halfstep
