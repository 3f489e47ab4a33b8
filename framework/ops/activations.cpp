#include "framework/ops/registry.h"

namespace halfstep {

void add_activations(OpList&) {}

}  // namespace halfstep
