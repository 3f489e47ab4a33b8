#include "framework/ops/registry.h"

namespace halfstep {

void add_pointwise_losses(OpList&) {}

}  // namespace halfstep
