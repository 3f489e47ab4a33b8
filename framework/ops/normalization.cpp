#include "framework/ops/registry.h"

namespace halfstep {

void add_normalization(OpList&) {}

}  // namespace halfstep
