// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/functional.h"

#include <cstdint>
#include <string_view>

namespace halfstep {
namespace {

Tensor differentiable_leaf(std::string_view op, const Tensor& x) {
  check<DTypeError>(x.is_floating_point(), op, "x must be a floating tensor, got ", x.dtype());
  return x.detach().set_requires_grad();
}

Shape concatenated(const Shape& a, const Shape& b) {
  Shape out = a;
  for (const int64_t size : b) out.push_back(size);
  return out;
}

void check_like(std::string_view op, const char* name, const Tensor& v, const Tensor& like) {
  check<ShapeError>(v.defined() && v.shape() == like.shape(), op, "v must have the shape of ", name, ", ", like.shape(), ", got ",
                    v.defined() ? v.shape() : Shape());
}

// Returns the gradient of y . v with respect to x, or zeros if y does not depend on x.
Tensor gradient_or_zeros(const Tensor& y, const Tensor& x, const Tensor& v, const GradOptions& options) {
  if (!y.requires_grad()) return x.new_zeros(x.shape());
  GradOptions unused_allowed = options;
  unused_allowed.allow_unused = true;
  const Tensor g = grad(Tensors{y}, Tensors{x}, v.defined() ? Tensors{v} : Tensors(), unused_allowed)[0];
  return g.defined() ? g : x.new_zeros(x.shape());
}

// Returns f(x), which must have one element, and its recorded gradient.
std::pair<Tensor, Tensor> value_and_gradient(std::string_view op, const OneTensorFunction& f, const Tensor& x) {
  const Tensor y = f(x);
  check<ShapeError>(y.numel() == 1, op, "f must have one element, got ", y.shape());
  return {y, gradient_or_zeros(y, x, {}, {.create_graph = true})};
}

}  // namespace

Tensors jacobian(const std::function<Tensor(const Tensors&)>& f, const Tensors& xs) {
  const EnableGrad on;
  Tensors leaves, rows;
  for (const Tensor& x : xs) leaves.push_back(differentiable_leaf("jacobian", x));
  const Tensor y = f(leaves), flat = y.reshape({-1});
  for (const Tensor& x : leaves) rows.push_back(x.new_zeros(concatenated({y.numel()}, x.shape())));
  if (y.requires_grad()) {
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const Tensors g = grad(Tensors{flat[i]}, leaves, {}, {.retain_graph = true, .allow_unused = true});
      for (size_t k = 0; k < g.size(); ++k) {
        if (g[k].defined()) rows[k][i].copy_(g[k]);
      }
    }
  }
  for (size_t k = 0; k < rows.size(); ++k) rows[k] = rows[k].reshape(concatenated(y.shape(), xs[k].shape()));
  return rows;
}

Tensor jacobian(const OneTensorFunction& f, const Tensor& x) {
  return jacobian([&f](const Tensors& in) { return f(in[0]); }, Tensors{x})[0];
}

Tensor hessian(const OneTensorFunction& f, const Tensor& x) {
  return jacobian([&f](const Tensor& in) { return value_and_gradient("hessian", f, in).second; }, x);
}

std::pair<Tensor, Tensor> vjp(const OneTensorFunction& f, const Tensor& x, const Tensor& v) {
  const EnableGrad on;
  const Tensor in = differentiable_leaf("vjp", x), y = f(in);
  if (v.defined() || y.numel() != 1) check_like("vjp", "f(x)", v, y);
  return {y.detach(), gradient_or_zeros(y, in, v, {})};
}

std::pair<Tensor, Tensor> jvp(const OneTensorFunction& f, const Tensor& x, const Tensor& v) {
  const EnableGrad on;
  check_like("jvp", "x", v, x);
  const Tensor in = differentiable_leaf("jvp", x), y = f(in);
  // u^T J is linear in u, so its derivative in u along v is J v.
  const Tensor u = y.new_zeros(y.shape()).set_requires_grad();
  return {y.detach(), gradient_or_zeros(gradient_or_zeros(y, in, u, {.create_graph = true}), u, v, {})};
}

std::pair<Tensor, Tensor> hvp(const OneTensorFunction& f, const Tensor& x, const Tensor& v) {
  const EnableGrad on;
  check_like("hvp", "x", v, x);
  const Tensor in = differentiable_leaf("hvp", x);
  const auto [y, gradient] = value_and_gradient("hvp", f, in);
  return {y.detach(), gradient_or_zeros(gradient, in, v, {})};
}

std::pair<Tensor, Tensor> vhp(const OneTensorFunction& f, const Tensor& x, const Tensor& v) { return hvp(f, x, v); }

}  // namespace halfstep
