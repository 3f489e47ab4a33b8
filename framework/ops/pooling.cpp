#include "framework/ops/registry.h"

namespace halfstep {

void add_pooling(OpList&) {}

}  // namespace halfstep
