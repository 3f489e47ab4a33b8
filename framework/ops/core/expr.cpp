// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/expr.h"

namespace halfstep {
namespace {

template <class F>
Expr apply(const Expr& a, F f) {
  return Expr(f(a.tensor()));
}

}  // namespace

namespace m {
Expr abs(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::abs(t); }); }
Expr sign(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::sign(t); }); }
Expr sqrt(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::sqrt(t); }); }
Expr exp(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::exp(t); }); }
Expr log(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::log(t); }); }
Expr sin(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::sin(t); }); }
Expr cos(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::cos(t); }); }
Expr sinh(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::sinh(t); }); }
Expr cosh(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::cosh(t); }); }
Expr tanh(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::tanh(t); }); }
Expr erfc(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::erfc(t); }); }
Expr normal_cdf(const Expr& x) { return erfc(x * Expr(-0.70710678118654752)) * Expr(0.5); }
Expr normal_pdf(const Expr& x) { return exp(x * x * Expr(-0.5)) * Expr(0.39894228040143268); }
Expr sigmoid(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::sigmoid(t); }); }
Expr softplus(const Expr& x) { return apply(x, [](const Tensor& t) { return neg(halfstep::logsigmoid(neg(t))); }); }
Expr floor(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::floor(t); }); }
Expr trunc(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::trunc(t); }); }
Expr raised(const Expr& x, const Expr& least) {
  return apply(x, [&](const Tensor& t) { return where(lt(t, least.number()), t - t.detach() + least.number(), t); });
}
Expr pow(const Expr& a, const Expr& b) {
  return b.is_number() ? Expr(halfstep::pow(a.tensor(), b.number())) : Expr(halfstep::pow(a.tensor(), b.tensor()));
}
Expr hypot(const Expr& a, const Expr& b) { return Expr(halfstep::hypot(a.tensor(), b.tensor())); }
Expr copysign(const Expr& a, const Expr& b) {
  return a.is_number() ? Expr(halfstep::copysign(a.number(), b.tensor())) : Expr(halfstep::copysign(a.tensor(), b.tensor()));
}
Expr digamma(const Expr& x) { return apply(x, [](const Tensor& t) { return halfstep::digamma(t); }); }
Expr polygamma(const Expr& n, const Expr& x) {
  return apply(x, [&](const Tensor& t) { return halfstep::polygamma(int64_t(n.number()), t); });
}
}  // namespace m

Expr operator-(const Expr& a) { return a.is_number() ? Expr(-a.number()) : Expr(neg(a.tensor())); }

#define HS_EXPR(symbol, op)                                                              \
  Expr operator symbol(const Expr& a, const Expr& b) {                                   \
    if (a.is_number() && b.is_number()) return Expr(double(a.number() symbol b.number())); \
    if (b.is_number()) return Expr(op(a.tensor(), b.number()));                          \
    if (a.is_number()) return Expr(op(a.number(), b.tensor()));                          \
    return Expr(op(a.tensor(), b.tensor()));                                             \
  }
HS_EXPR(+, add)
HS_EXPR(-, sub)
HS_EXPR(*, mul)
HS_EXPR(/, div)
#undef HS_EXPR

// The rows compare a tensor with a number or with a tensor.
#define HS_EXPR(symbol, op)                                                               \
  Expr operator symbol(const Expr& a, const Expr& b) {                                    \
    return Expr(b.is_number() ? op(a.tensor(), b.number()) : op(a.tensor(), b.tensor())); \
  }
HS_EXPR(<, lt)
HS_EXPR(<=, le)
HS_EXPR(>, gt)
HS_EXPR(>=, ge)
HS_EXPR(==, eq)
HS_EXPR(!=, ne)
#undef HS_EXPR

Expr select(const Expr& cond, const Expr& a, const Expr& b) {
  const Tensor& c = cond.tensor();
  if (a.is_number()) return Expr(where(c, a.number(), b.tensor()));
  if (b.is_number()) return Expr(where(c, a.tensor(), b.number()));
  return Expr(where(c, a.tensor(), b.tensor()));
}

}  // namespace halfstep
