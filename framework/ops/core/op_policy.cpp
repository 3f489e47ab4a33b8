// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/op_policy.h"

#include <algorithm>

#include "framework/math/functors.h"

namespace halfstep {
namespace {

bool promotes_by_itself(std::string_view name) {
  const auto named = [&](const ElementwiseRow& row) { return row.name == name; };
  return name == "where" || name == "equal" || std::any_of(std::begin(kBinaryRows), std::end(kBinaryRows), named) ||
         std::any_of(std::begin(kTestRows), std::end(kTestRows), named);
}

}  // namespace

std::string_view list_policy(const Op& op) {
  switch (op.policy) {
    case CastPolicy::low: return "lower";
    case CastPolicy::f32:
    case CastPolicy::f32_output: return "fp32";
    case CastPolicy::promote: return "promote";
    case CastPolicy::banned: return "banned";
    case CastPolicy::keep: break;
  }
  return promotes_by_itself(op.alias_of.empty() ? op.name : op.alias_of) ? "builtin_promote" : "keep";
}

std::vector<DType> dtypes_of(const Op& op) {
  std::vector<DType> out;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType t = DType(i);
    if (op.takes == Takes::bits) {
      if (!is_floating(t)) out.push_back(t);
      continue;
    }
    if (is_floating(t) || (is_integral(t) && op.takes != Takes::floating) || op.takes == Takes::any) out.push_back(t);
  }
  return out;
}

}  // namespace halfstep
