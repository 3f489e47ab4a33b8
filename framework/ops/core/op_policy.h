// SPDX-License-Identifier: Apache-2.0
// The registry with the names of the autocast lists, as `halfstep ops`, docs/ops.md and the tests print it.
#pragma once

#include <string_view>
#include <vector>

#include "framework/ops/core/registry.h"

namespace halfstep {

// "lower", "fp32", "promote", "banned"; for ops on no list "builtin_promote" where an op of two tensors promotes by itself (add,
// eq, where), else "keep".
std::string_view list_policy(const Op& op);

// Is an op nothing but calls of others, so that no policy of its own is asked for?
bool calls_others(std::string_view op);
// Throws ValueError for a name that no op has, and for a policy that the op cannot have.
void check_names(const OpPolicies& policies);

// The dtypes that an op computes with.
std::vector<DType> dtypes_of(const Op& op);

}  // namespace halfstep
