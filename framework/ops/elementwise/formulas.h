// SPDX-License-Identifier: Apache-2.0
// The rows of elementwise.def and pointwise.def read on tensors: each formula and each of its gradients in differentiable ops.
// Recorded backward passes compute these gradients, and traces the formulas (framework/backend/graph_trace.h).
#pragma once

#include "framework/math/op_kinds.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

Tensor unary_formula(Unary op, const Tensor& x);
Tensor unary_gradient(Unary op, const Tensor& g, const Tensor& saved);
// The gradient of relu's input from that of its result y, by one kernel unless it is recorded. For ops that end with a ReLU.
Tensor relu_gradient(const Tensor& g, const Tensor& y);
Tensor binary_formula(Binary op, const Tensor& a, const Tensor& b);
Tensor binary_gradient(Binary op, int input, const Tensor& g, const Tensor& a, const Tensor& b);
// in: a, b and c, as many as the row has. 16-bit operands of gradients are read as float32.
Tensor pointwise_formula(Pointwise row, const Tensors& in, double p, double q);
Tensor pointwise_gradient(Pointwise row, int input, const Tensor& g, const Tensors& in, double p, double q);

}  // namespace halfstep
