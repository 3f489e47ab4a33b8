// SPDX-License-Identifier: Apache-2.0
// Derivatives of functions of one tensor, as torch.autograd.functional and torch.func have them. They record f whatever the mode
// around them, write no .grad, and their results have no graph: for derivatives of them, use grad() with create_graph.
#pragma once

#include <functional>
#include <utility>

#include "framework/autograd/autograd.h"
#include "framework/autograd/gradcheck.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

using OneTensorFunction = std::function<Tensor(const Tensor&)>;

// d f(x) / d x: of y = f(x), J[i..., j...] = d y[i...] / d x[j...], of the shape [y..., x...]. One backward for each element of y.
// 0 where y does not depend on x. x is floating, else DTypeError.
Tensor jacobian(const OneTensorFunction& f, const Tensor& x);
// With respect to each of several tensors.
Tensors jacobian(const std::function<Tensor(const Tensors&)>& f, const Tensors& xs);
// The second derivatives of an f with one element, of the shape [x..., x...]. Throws ShapeError for another f.
Tensor hessian(const OneTensorFunction& f, const Tensor& x);
// f(x), and the product of a vector with the Jacobian: v^T J of x's shape, v of f(x)'s (may be left out where f has one element);
// J v of f(x)'s shape, v of x's; and H v = v^T H, both of x's shape. Throw ShapeError for a v of another shape.
std::pair<Tensor, Tensor> vjp(const OneTensorFunction& f, const Tensor& x, const Tensor& v = Tensor());
std::pair<Tensor, Tensor> jvp(const OneTensorFunction& f, const Tensor& x, const Tensor& v);
std::pair<Tensor, Tensor> hvp(const OneTensorFunction& f, const Tensor& x, const Tensor& v);
std::pair<Tensor, Tensor> vhp(const OneTensorFunction& f, const Tensor& x, const Tensor& v);

// torch.autograd's names.
namespace autograd {

using halfstep::backward, halfstep::grad, halfstep::gradcheck, halfstep::gradgradcheck;

namespace functional {

using halfstep::hessian, halfstep::hvp, halfstep::jacobian, halfstep::jvp, halfstep::vhp, halfstep::vjp;

}  // namespace functional
}  // namespace autograd
}  // namespace halfstep
