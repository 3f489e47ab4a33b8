// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/expr.h"

namespace halfstep {
namespace m {

#define HS_FUNCTION(name) \
  Expr name(const Expr& x) { return Expr(halfstep::name(x.tensor())); }
HS_EXPR_UNARY(HS_FUNCTION)
#undef HS_FUNCTION

// Functions of two tensors, or of a tensor and a number where the op accepts one.
#define HS_FUNCTION(name)                                                     \
  Expr name(const Expr& a, const Expr& b) {                                   \
    if constexpr (requires { halfstep::name(a.tensor(), b.number()); }) {     \
      if (b.is_number()) return Expr(halfstep::name(a.tensor(), b.number())); \
    }                                                                         \
    if constexpr (requires { halfstep::name(a.number(), b.tensor()); }) {     \
      if (a.is_number()) return Expr(halfstep::name(a.number(), b.tensor())); \
    }                                                                         \
    return Expr(halfstep::name(a.tensor(), b.tensor()));                      \
  }
HS_EXPR_BINARY(HS_FUNCTION)
#undef HS_FUNCTION

// The formulas of framework/math/scalar.h, in ops.
constexpr double kSqrtHalf = 0.70710678118654752, kDensityAtZero = 0.39894228040143268;  // sqrt(1/2), 1 / sqrt(2 pi)

Expr normal_cdf(const Expr& x) { return erfc(x * Expr(-kSqrtHalf)) * Expr(0.5); }
Expr normal_pdf(const Expr& x) { return exp(x * x * Expr(-0.5)) * Expr(kDensityAtZero); }
Expr softplus(const Expr& x) { return Expr(halfstep::neg(halfstep::logsigmoid(halfstep::neg(x.tensor())))); }
Expr mish_factor(const Expr& x) { return tanh(softplus(x)); }
Expr mish_slope(const Expr& x) {
  const Expr factor = mish_factor(x);
  return factor + x * sigmoid(x) * (Expr(1) - factor * factor);
}
// Returns max(x, least), with gradient 1 everywhere.
Expr raised(const Expr& x, const Expr& least) {
  const Tensor& t = x.tensor();
  return Expr(where(lt(t, least.number()), t - t.detach() + least.number(), t));
}
Expr polygamma(const Expr& n, const Expr& x) { return Expr(halfstep::polygamma(int64_t(n.number()), x.tensor())); }

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

// Comparisons; rows compare a tensor with a number or a tensor.
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
