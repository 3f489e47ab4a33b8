#include "framework/ops/registry.h"

namespace halfstep {

void add_convolution(OpList&) {}

}  // namespace halfstep
