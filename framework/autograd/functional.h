// SPDX-License-Identifier: Apache-2.0
// Derivatives of functions of one tensor, as in torch.autograd.functional and torch.func. They always record f, do not write
// .grad, and return tensors without a graph. To differentiate them again, use grad() with create_graph.
#pragma once

#include <functional>
#include <utility>

#include "framework/autograd/autograd.h"
#include "framework/autograd/gradcheck.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

using OneTensorFunction = std::function<Tensor(const Tensor&)>;

// Returns d f(x) / d x: for y = f(x), J[i..., j...] = d y[i...] / d x[j...] of shape [y..., x...], 0 where y does not depend on x.
// Runs one backward for each element of y. Throws DTypeError if x is not floating.
Tensor jacobian(const OneTensorFunction& f, const Tensor& x);
// Returns the derivative with respect to each of several tensors.
Tensors jacobian(const std::function<Tensor(const Tensors&)>& f, const Tensors& xs);
// Returns the second derivatives of an f with one element, of shape [x..., x...]. Throws ShapeError if f has more elements.
Tensor hessian(const OneTensorFunction& f, const Tensor& x);
// Return f(x) and a product: vjp returns v^T J, of x's shape (v has f(x)'s shape, and may be omitted if f has one element); jvp
// returns J v, of f(x)'s shape (v has x's shape); hvp and vhp return H v = v^T H, of x's shape. Throw ShapeError if v has another
// shape.
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
