#include "framework/ops/registry.h"

namespace halfstep {

void add_shaping(OpList&) {}

}  // namespace halfstep
