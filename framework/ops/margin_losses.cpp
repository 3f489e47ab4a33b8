#include "framework/ops/registry.h"

namespace halfstep {

void add_margin_losses(OpList&) {}

}  // namespace halfstep
