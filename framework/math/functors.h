// SPDX-License-Identifier: Apache-2.0
// The rows of elementwise.def as functors and tables of facts, indexed by the enums of op_kinds.h.
#pragma once

#include <string_view>

#include "amp/policy/policy.h"
#include "framework/math/gradient_names.h"
#include "framework/math/op_kinds.h"
#include "framework/math/scalar.h"

namespace halfstep {

// A formula is compiled for the host, for the device and, with Expr (framework/ops/core/expr.h), for tensors. Declares Expr and its
// functions, so that rows find them.
class Expr;
namespace m {
#define HS_EXPR_UNARY(X)                                                                                                        \
  X(neg)                                                                                                                        \
  X(abs)                                                                                                                        \
  X(sign) X(sqrt) X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) \
      X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(erf) X(erfc) X(erfinv) X(lgamma) X(digamma) X(sigmoid) X(floor) X(ceil)      \
          X(round) X(trunc)
#define HS_EXPR_BINARY(X) \
  X(add) X(sub) X(mul) X(pow) X(atan2) X(hypot) X(copysign) X(fmod) X(remainder) X(floor_divide) X(trunc_divide)
#define HS_DECLARE(name) Expr name(const Expr& x);
HS_EXPR_UNARY(HS_DECLARE)
#undef HS_DECLARE
#define HS_DECLARE(name) Expr name(const Expr& a, const Expr& b);
HS_EXPR_BINARY(HS_DECLARE)
#undef HS_DECLARE
Expr normal_cdf(const Expr&);
Expr normal_pdf(const Expr&);
Expr mish_factor(const Expr&);
Expr mish_slope(const Expr&);
Expr softplus(const Expr&);
Expr polygamma(const Expr& n, const Expr& x);
Expr raised(const Expr& x, const Expr& least);

// Returns the derivative of sinc. Near 0 uses a series, because the formula would subtract two nearly equal numbers.
template <class T>
HS_HD T sinc_slope(T x) {
  const T u = T(3.14159265358979324) * x, u2 = u * u;
  const T series = u * (T(-1.0 / 3) + u2 * (T(1.0 / 30) + u2 * (T(-1.0 / 840) + u2 * (T(1.0 / 45360) + u2 * T(-1.0 / 3991680)))));
  const T far = select(u2 < T(0.1), T(1) + u2, u);  // avoids 0/0, whose gradient would be NaN
  return T(3.14159265358979324) * select(u2 < T(0.1), series, (cos(far) - sin(far) / far) / far);
}
}  // namespace m

enum class OpKind : uint8_t { any, number, real };
enum class OpSaves : uint8_t { none, x, y };

namespace functor {

// Names the one saved value of a backward functor; a row that names x but saves y does not compile.
#define HS_SAVED_none(T)
#define HS_SAVED_x(T) const T& x = saved;
#define HS_SAVED_y(T) const T& y = saved;
#define HS_UNARY(name, policy, kind, saves, forward, dx, lo, hi, doc)          \
  struct name {                                                                \
    template <class T>                                                         \
    HS_HD T operator()(T x) const {                                            \
      return T(forward);                                                       \
    }                                                                          \
  };                                                                           \
  struct name##_backward {                                                     \
    template <class T>                                                         \
    HS_HD T operator()([[maybe_unused]] T g, [[maybe_unused]] T saved) const { \
      HS_SAVED_##saves(T) return T(dx);                                        \
    }                                                                          \
  };
#define HS_BINARY(name, policy, kind, forward, da, db, lo, hi, doc)                                        \
  struct name {                                                                                            \
    template <class T>                                                                                     \
    HS_HD T operator()(T a, T b) const {                                                                   \
      return T(forward);                                                                                   \
    }                                                                                                      \
  };                                                                                                       \
  struct name##_backward_a {                                                                               \
    template <class T>                                                                                     \
    HS_HD constexpr T operator()([[maybe_unused]] T g, [[maybe_unused]] T a, [[maybe_unused]] T b) const { \
      return T(da);                                                                                        \
    }                                                                                                      \
  };                                                                                                       \
  struct name##_backward_b {                                                                               \
    template <class T>                                                                                     \
    HS_HD constexpr T operator()([[maybe_unused]] T g, [[maybe_unused]] T a, [[maybe_unused]] T b) const { \
      return T(db);                                                                                        \
    }                                                                                                      \
  };
#define HS_TEST(name, forward, doc)         \
  struct name {                             \
    template <class T>                      \
    HS_HD bool operator()(T a, T b) const { \
      return (forward);                     \
    }                                       \
  };
#include "framework/math/elementwise.def"

// relu(a + b), whose gradients follow from its result. Not a row, because rows save inputs.
struct add_relu {
  template <class T>
  HS_HD T operator()(T a, T b) const {
    return relu{}(add{}(a, b));
  }
};
// relu's gradient for y, of the sum of two gradients.
struct add_relu_backward {
  template <class T>
  HS_HD constexpr T operator()(T a, T b, T y) const {
    return relu_backward{}(T(a + b), y);
  }
};

}  // namespace functor

struct ElementwiseRow {
  std::string_view name;
  CastPolicy policy;
  OpKind kind;
  OpSaves saves;
  double lo, hi;  // where tests draw inputs
  std::string_view doc;
};

inline constexpr ElementwiseRow kUnaryRows[] = {
#define HS_UNARY(name, policy, kind, saves, forward, dx, lo, hi, doc) \
  {#name, CastPolicy::policy, OpKind::kind, OpSaves::saves, lo, hi, doc},
#include "framework/math/elementwise.def"
};
inline constexpr ElementwiseRow kBinaryRows[] = {
#define HS_BINARY(name, policy, kind, forward, da, db, lo, hi, doc) \
  {#name, CastPolicy::policy, OpKind::kind, OpSaves::none, lo, hi, doc},
#include "framework/math/elementwise.def"
};
inline constexpr ElementwiseRow kComparisonRows[] = {
#define HS_TEST(name, forward, doc) {#name, CastPolicy::keep, OpKind::any, OpSaves::none, -2.0, 2.0, doc},
#include "framework/math/elementwise.def"
};
inline constexpr int kUnaryCount = sizeof(kUnaryRows) / sizeof(kUnaryRows[0]);
inline constexpr int kBinaryCount = sizeof(kBinaryRows) / sizeof(kBinaryRows[0]);
inline constexpr int kComparisonCount = sizeof(kComparisonRows) / sizeof(kComparisonRows[0]);

}  // namespace halfstep
