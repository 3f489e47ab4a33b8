#include "framework/ops/registry.h"

namespace halfstep {

void add_moments(OpList&) {}

}  // namespace halfstep
