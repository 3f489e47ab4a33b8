// SPDX-License-Identifier: Apache-2.0
#include "amp/policy/policy.h"

namespace halfstep {

std::string_view name(CastPolicy p) {
  constexpr std::string_view names[] = {"low", "f32", "f32_output", "promote", "keep", "banned"};
  return names[size_t(p)];
}

DType cast_target(CastPolicy policy, DType low, DType self, std::span<const DType> all) {
  if (!is_floating(self) || self == DType::f64) return self;
  switch (policy) {
    case CastPolicy::low: return low;
    case CastPolicy::f32: return DType::f32;
    case CastPolicy::promote:
      for (DType d : all)
        if (d == DType::f32 || (is_half(d) && d != low)) return DType::f32;
      return low;
    case CastPolicy::f32_output:
    case CastPolicy::keep:
    case CastPolicy::banned: break;
  }
  return self;
}

}  // namespace halfstep
