// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/elementwise/formulas.h"

#include "framework/math/functors.h"
#include "framework/math/pointwise.h"
#include "framework/ops/core/expr.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/ops.h"

// clang-format off: it would join the last line of a macro with the #include that reads it
namespace halfstep {
namespace {

// Returns a tensor filled with the number, rounded to its dtype, if the result is a plain number.
Tensor as_tensor(const Expr& e, const Tensor& like) {
  if (!e.is_number()) return e.tensor();
  const Tensor t = empty_like(like);
  fill(t, e.number());
  return t;
}

}  // namespace

Tensor unary_formula(Unary op, const Tensor& x) {
  switch (op) {
#define HS_UNARY(name, ...) \
  case Unary::name:         \
    return as_tensor(functor::name{}(Expr(x)), x);
#include "framework/math/elementwise.def"
  }
  return {};
}

Tensor unary_gradient(Unary op, const Tensor& g, const Tensor& saved) {
  switch (op) {
#define HS_UNARY(name, ...) \
  case Unary::name:         \
    return as_tensor(functor::name##_backward{}(Expr(g), Expr(saved)), g);
#include "framework/math/elementwise.def"
  }
  return {};
}

Tensor binary_formula(Binary op, const Tensor& a, const Tensor& b) {
  switch (op) {
#define HS_BINARY(name, ...) \
  case Binary::name:         \
    return functor::name{}(Expr(a), Expr(b)).tensor();
#include "framework/math/elementwise.def"
  }
  return {};
}

Tensor binary_gradient(Binary op, int input, const Tensor& g, const Tensor& a, const Tensor& b) {
  switch (op) {
#define HS_BINARY(name, ...) \
  case Binary::name:         \
    return as_tensor(input == 0 ? functor::name##_backward_a{}(Expr(g), Expr(a), Expr(b))  \
                                : functor::name##_backward_b{}(Expr(g), Expr(a), Expr(b)), \
                     g);
#include "framework/math/elementwise.def"
  }
  return {};
}

Tensor pointwise_formula(Pointwise row, const Tensors& in, double p, double q) {
  const auto operand = [&](size_t i) { return i < in.size() ? Expr(in[i]) : Expr(0.0); };
  switch (row) {
#define HS_POINTWISE(row, ...) \
  case Pointwise::row:         \
    return functor::pointwise::row{}(operand(0), operand(1), operand(2), Expr(p), Expr(q)).tensor();
#include "framework/math/pointwise.def"
  }
  return {};
}

Tensor pointwise_gradient(Pointwise row, int input, const Tensor& g, const Tensors& in, double p, double q) {
  const auto operand = [](const Tensor& t) { return t.defined() && is_half(t.dtype()) ? Expr(t.to(DType::f32)) : Expr(t); };
  const auto read = [&]<class Row>(Row) {
    const Expr grad = operand(g), a = operand(in[0]), b = operand(in.size() > 1 ? in[1] : Tensor()),
               c = operand(in.size() > 2 ? in[2] : Tensor());
    if (input == 0) return Row::template gradient<0>(grad, a, b, c, Expr(p), Expr(q));
    if (input == 1) return Row::template gradient<1>(grad, a, b, c, Expr(p), Expr(q));
    return Row::template gradient<2>(grad, a, b, c, Expr(p), Expr(q));
  };
  switch (row) {
#define HS_POINTWISE(row, ...) \
  case Pointwise::row:         \
    return read(functor::pointwise::row{}).tensor();
#include "framework/math/pointwise.def"
  }
  return {};
}

}  // namespace halfstep
