// SPDX-License-Identifier: Apache-2.0
// Compares the gradients of an op with central differences in float64.
#pragma once

#include <concepts>
#include <functional>
#include <string>

#include "framework/tensor/tensor.h"

namespace halfstep {

struct GradcheckOptions {
  double eps = 1e-6;   // added to and subtracted from an element
  double atol = 1e-6;  // the two may differ by atol + rtol |difference|
  double rtol = 1e-4;
};

using TensorFunction = std::function<Tensors(const Tensors&)>;

// Compares the derivative of two weighted sums of each floating output, by each element of each input that requires grad, with the
// difference (sum(x + eps) - sum(x - eps)) / 2 eps. To compute it, changes the element in the input's own memory for two calls of
// f, and restores it, also if f throws. Throws AutogradError with the input, the element and both values. Floating inputs must be
// float64.
void gradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options = {});
// Does the same for a function of one tensor with one result.
template <std::invocable<const Tensor&> F>
void gradcheck(const F& f, const Tensor& x, const GradcheckOptions& options = {}) {
  gradcheck([&f](const Tensors& in) { return Tensors{f(in[0])}; }, Tensors{x}, options);
}
// Compares second derivatives: runs gradcheck on the gradient of f, also by its grad_outputs, which are the same in every run.
void gradgradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options = {});

}  // namespace halfstep
