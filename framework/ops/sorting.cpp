#include "framework/ops/registry.h"

namespace halfstep {

void add_sorting(OpList&) {}

}  // namespace halfstep
