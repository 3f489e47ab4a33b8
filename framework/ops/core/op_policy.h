// SPDX-License-Identifier: Apache-2.0
// Facts about the ops of the registry: their autocast lists and dtypes. For `halfstep ops`, docs/ops.md, the tests, and policies
// that a region sets by name.
#pragma once

#include <string_view>
#include <vector>

#include "framework/ops/core/registry.h"

namespace halfstep {

// Returns "lower", "fp32", "promote" or "banned"; for ops on no list "builtin_promote" if an op of two tensors promotes by itself
// (add, eq, where), else "keep".
std::string_view list_policy(const Op& op);

// Returns whether an op only calls others, so that its own policy is never used.
bool calls_others(std::string_view op);
// Throws ValueError for a name that is not an op, and for a policy that the op cannot have. Checks each set of policies once.
void check_names(const OpPolicies& policies);

// Returns the dtypes with which an op computes.
std::vector<DType> dtypes_of(const Op& op);

}  // namespace halfstep
