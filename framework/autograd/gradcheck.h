// SPDX-License-Identifier: Apache-2.0
// Compares the gradients of an op with central differences in float64.
#pragma once

#include <concepts>
#include <functional>
#include <string>

#include "framework/tensor/tensor.h"

namespace halfstep {

struct GradcheckOptions {
  double eps = 1e-6;    // step of the differences
  double atol = 1e-6;
  double rtol = 1e-4;
};

using TensorFunction = std::function<Tensors(const Tensors&)>;

// Compares, for each float64 input that requires grad, the whole Jacobian of the floating outputs with differences, row by row.
// Throws AutogradError with the input, the element and both values. Inputs must be float64.
void gradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options = {});
// Does the same for a function of one tensor with one result.
template <std::invocable<const Tensor&> F>
void gradcheck(const F& f, const Tensor& x, const GradcheckOptions& options = {}) {
  gradcheck([&f](const Tensors& in) { return Tensors{f(in[0])}; }, Tensors{x}, options);
}
// Compares second derivatives: checks the gradient itself, with random (seeded) grad_outputs.
void gradgradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options = {});

}  // namespace halfstep
