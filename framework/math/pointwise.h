// The rows of pointwise.def as functors, an enum and a table of facts.
#pragma once

#include "framework/math/functors.h"

namespace halfstep {

enum class Pointwise : uint8_t {
#define HS_POINTWISE(row, ...) row,
#include "framework/math/pointwise.def"
#undef HS_POINTWISE
};

// The fourth reading of a formula, at compile time: which of g, a, b, c it names, as bits 0 to 3.
struct Names {
  unsigned bits = 0;
  HS_HD explicit constexpr Names(double) {}
  HS_HD static constexpr Names of(int which) {
    Names n(0);
    n.bits = 1u << which;
    return n;
  }
};
#define HS_NAMES(op)                                      \
  HS_HD constexpr Names operator op(Names x, Names y) { \
    x.bits |= y.bits;                                     \
    return x;                                             \
  }
HS_NAMES(+) HS_NAMES(-) HS_NAMES(*) HS_NAMES(/) HS_NAMES(<) HS_NAMES(<=) HS_NAMES(>) HS_NAMES(>=) HS_NAMES(==)
#undef HS_NAMES
HS_HD constexpr Names operator-(Names x) { return x; }
HS_HD constexpr Names select(Names cond, Names x, Names y) { return cond + x + y; }
namespace m {
HS_HD constexpr Names sign(Names x) { return x; }
HS_HD constexpr Names exp(Names x) { return x; }
HS_HD constexpr Names log(Names x) { return x; }
HS_HD constexpr Names tanh(Names x) { return x; }
HS_HD constexpr Names sigmoid(Names x) { return x; }
HS_HD constexpr Names softplus(Names x) { return x; }
}  // namespace m

// Called with every argument, whatever the row names.
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
#undef HS_POINTWISE
}  // namespace functor::pointwise

// Which of g, a, b, c the gradient of Input names; 0: it is 0 everywhere.
template <class Row, int Input>
inline constexpr unsigned gradient_names =
    Row::template gradient<Input>(Names::of(0), Names::of(1), Names::of(2), Names::of(3), Names(0), Names(0)).bits;

struct PointwiseRow {
  std::string_view op;
  int arity;
  CastPolicy policy;
  unsigned names[3];  // gradient_names of each input
  std::string_view doc;
};
inline constexpr PointwiseRow kPointwiseRows[] = {
#define HS_POINTWISE(row, op, arity, policy, forward, da, db, dc, doc)                                                \
  {#op, arity, CastPolicy::policy,                                                                                    \
   {gradient_names<functor::pointwise::row, 0>, gradient_names<functor::pointwise::row, 1>, gradient_names<functor::pointwise::row, 2>}, doc},
#include "framework/math/pointwise.def"
#undef HS_POINTWISE
};
inline constexpr int kPointwiseCount = sizeof(kPointwiseRows) / sizeof(kPointwiseRows[0]);

}  // namespace halfstep
