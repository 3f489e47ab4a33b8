// SPDX-License-Identifier: Apache-2.0
// Are an op's gradients right? Compares them with central differences in float64.
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

// For each float64 input that requires grad: the whole Jacobian of the floating outputs, row by row, against differences.
// Throws AutogradError naming input, element, both values. Inputs must be float64.
void gradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options = {});
// Of one tensor to one.
template <std::invocable<const Tensor&> F>
void gradcheck(const F& f, const Tensor& x, const GradcheckOptions& options = {}) {
  gradcheck([&f](const Tensors& in) { return Tensors{f(in[0])}; }, Tensors{x}, options);
}
// The same for the gradient itself: checks second derivatives, with random (seeded) grad_outputs.
void gradgradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options = {});

}  // namespace halfstep
