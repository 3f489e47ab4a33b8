#include "framework/ops/registry.h"

namespace halfstep {

void add_scans(OpList&) {}

}  // namespace halfstep
