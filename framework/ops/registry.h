// The list of all ops, for documentation, completeness tests and the precision plan.
#pragma once

#include <vector>

#include "framework/ops/call.h"

namespace halfstep {

using OpList = std::vector<OpInfo>;
const OpList& all_ops();          // sorted by name
const OpInfo* find_op(std::string_view name);

// One function a family, defined beside its ops.
void add_elementwise(OpList& list);
void add_select(OpList& list);
void add_copies(OpList& list);
void add_views(OpList& list);
void add_products(OpList& list);
void add_mlp(OpList& list);
void add_reductions(OpList& list);
void add_softmax(OpList& list);
void add_losses(OpList& list);
void add_indexing(OpList& list);
void add_random(OpList& list);

}  // namespace halfstep
