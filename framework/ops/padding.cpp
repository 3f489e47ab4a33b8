#include "framework/ops/registry.h"

namespace halfstep {

void add_padding(OpList&) {}

}  // namespace halfstep
