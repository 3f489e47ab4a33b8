#include "framework/ops/registry.h"

namespace halfstep {

void add_pointwise(OpList&) {}

}  // namespace halfstep
