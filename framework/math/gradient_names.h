// SPDX-License-Identifier: Apache-2.0
// Computes which values a gradient's formula reads.
#pragma once

#include "framework/base/host_device.h"

namespace halfstep {
namespace math {

// A type for a fourth reading of a formula, at compile time: it takes the place of the numbers and collects which of g, a, b, c
// (bits 0 to 3) the formula of a gradient names. An op saves those tensors.
struct Names {
  unsigned bits = 0;
  HS_HD explicit constexpr Names(double) {}
  HS_HD static constexpr Names of(int which) {
    Names n(0);
    n.bits = 1u << which;
    return n;
  }
};
#define HS_NAMES(op)                                    \
  HS_HD constexpr Names operator op(Names x, Names y) { \
    x.bits |= y.bits;                                   \
    return x;                                           \
  }
HS_NAMES(+)
HS_NAMES(-) HS_NAMES(*) HS_NAMES(/) HS_NAMES(<) HS_NAMES(<=) HS_NAMES(>) HS_NAMES(>=) HS_NAMES(==) HS_NAMES(!=)
#undef HS_NAMES
    HS_HD constexpr Names
    operator-(Names x) {
  return x;
}
HS_HD constexpr Names select(Names cond, Names x, Names y) { return cond + x + y; }

}  // namespace math

namespace m {
HS_HD constexpr math::Names sign(math::Names x) { return x; }
HS_HD constexpr math::Names exp(math::Names x) { return x; }
HS_HD constexpr math::Names log(math::Names x) { return x; }
HS_HD constexpr math::Names floor(math::Names x) { return x; }
HS_HD constexpr math::Names trunc(math::Names x) { return x; }
HS_HD constexpr math::Names tanh(math::Names x) { return x; }
HS_HD constexpr math::Names sigmoid(math::Names x) { return x; }
HS_HD constexpr math::Names softplus(math::Names x) { return x; }
HS_HD constexpr math::Names polygamma(math::Names n, math::Names x) { return n + x; }
HS_HD constexpr math::Names raised(math::Names x, math::Names least) { return x + least; }
HS_HD constexpr math::Names hypot(math::Names x, math::Names y) { return x + y; }
HS_HD constexpr math::Names copysign(math::Names x, math::Names y) { return x + y; }
HS_HD constexpr math::Names pow(math::Names x, math::Names y) { return x + y; }
}  // namespace m

}  // namespace halfstep
