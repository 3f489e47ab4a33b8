#include "framework/ops/registry.h"

namespace halfstep {

void add_masks(OpList&) {}

}  // namespace halfstep
