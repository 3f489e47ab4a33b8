#include "framework/ops/registry.h"

namespace halfstep {

void add_grid_sample(OpList&) {}

}  // namespace halfstep
