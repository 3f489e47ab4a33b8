#include "framework/ops/registry.h"

namespace halfstep {

void add_recurrent(OpList&) {}

}  // namespace halfstep
