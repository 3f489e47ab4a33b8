// The rows of pointwise.def as functors, an enum and a table of facts.
#pragma once

#include "framework/math/functors.h"

namespace halfstep {

enum class Pointwise : uint8_t {
#define HS_POINTWISE(name, ...) name,
#include "framework/math/pointwise.def"
#undef HS_POINTWISE
};

namespace functor::pointwise {
// Called with every argument, whatever the row names.
#define HS_POINTWISE(name, arity, policy, forward, da, db, dc, doc)                                                      \
  struct name {                                                                                                          \
    template <class T>                                                                                                   \
    HS_HD T operator()([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T c, [[maybe_unused]] T p,           \
                       [[maybe_unused]] T q) const { return T(forward); }                                                \
  };                                                                                                                     \
  struct name##_backward {                                                                                               \
    template <int Input, class T>                                                                                        \
    HS_HD T at([[maybe_unused]] T g, [[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T c,                   \
               [[maybe_unused]] T p, [[maybe_unused]] T q) const {                                                       \
      if constexpr (Input == 0) return T(da);                                                                            \
      else if constexpr (Input == 1) return T(db);                                                                       \
      else return T(dc);                                                                                                 \
    }                                                                                                                    \
  };
#include "framework/math/pointwise.def"
#undef HS_POINTWISE
}  // namespace functor::pointwise

struct PointwiseRow {
  std::string_view name;
  int arity;
  CastPolicy policy;
  std::string_view doc;
};
inline constexpr PointwiseRow kPointwiseRows[] = {
#define HS_POINTWISE(name, arity, policy, forward, da, db, dc, doc) {#name, arity, CastPolicy::policy, doc},
#include "framework/math/pointwise.def"
#undef HS_POINTWISE
};

}  // namespace halfstep
