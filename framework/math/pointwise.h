// SPDX-License-Identifier: Apache-2.0
// The rows of pointwise.def as functors and a table of facts, indexed by the enum of op_kinds.h.
#pragma once

#include "framework/math/functors.h"

namespace halfstep {

// Takes every argument, whichever of them the row names.
namespace functor::pointwise {
#define HS_POINTWISE(row, op, arity, policy, forward, da, db, dc, doc)                                                     \
  struct row {                                                                                                             \
    template <class T>                                                                                                     \
    HS_HD T operator()([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T c, [[maybe_unused]] T p,             \
                       [[maybe_unused]] T q) const { return T(forward); }                                                  \
    template <int Input, class T>                                                                                          \
    HS_HD static constexpr T gradient([[maybe_unused]] T g, [[maybe_unused]] T a, [[maybe_unused]] T b,                    \
                                      [[maybe_unused]] T c, [[maybe_unused]] T p, [[maybe_unused]] T q) {                  \
      if constexpr (Input == 0) return T(da);                                                                              \
      else if constexpr (Input == 1) return T(db);                                                                         \
      else return T(dc);                                                                                                   \
    }                                                                                                                      \
  };
#include "framework/math/pointwise.def"
}  // namespace functor::pointwise

// Bits of g, a, b, c that the gradient of Input names; 0: the gradient is 0 everywhere.
template <class Row, int Input>
inline constexpr unsigned gradient_names = Row::template gradient<Input>(math::Names::of(0), math::Names::of(1), math::Names::of(2),
                                                                         math::Names::of(3), math::Names(0), math::Names(0))
                                               .bits;

struct PointwiseRow {
  std::string_view op;
  int arity;
  CastPolicy policy;
  unsigned names[3];  // gradient_names of each input
  std::string_view doc;
};
inline constexpr PointwiseRow kPointwiseRows[] = {
#define HS_POINTWISE(row, op, arity, policy, forward, da, db, dc, doc)                      \
  {#op,                                                                                     \
   arity,                                                                                   \
   CastPolicy::policy,                                                                      \
   {gradient_names<functor::pointwise::row, 0>, gradient_names<functor::pointwise::row, 1>, \
    gradient_names<functor::pointwise::row, 2>},                                            \
   doc},
#include "framework/math/pointwise.def"
};
inline constexpr int kPointwiseCount = sizeof(kPointwiseRows) / sizeof(kPointwiseRows[0]);

}  // namespace halfstep
