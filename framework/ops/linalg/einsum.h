// SPDX-License-Identifier: Apache-2.0
// The registered op of einsum (framework/ops/linalg/contractions.h).
#pragma once

#include "framework/ops/core/call.h"

namespace halfstep {

inline constexpr OpInfo kEinsumInfo{
    .name = "einsum", .policy = CastPolicy::low, .doc = "sums of products by Einstein's convention", .dtypes = DTypeSet::any};

}  // namespace halfstep
