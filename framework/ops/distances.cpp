#include "framework/ops/registry.h"

namespace halfstep {

void add_distances(OpList&) {}

}  // namespace halfstep
