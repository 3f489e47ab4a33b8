#include "framework/ops/registry.h"

namespace halfstep {

void add_resample(OpList&) {}

}  // namespace halfstep
