#include "framework/ops/registry.h"

namespace halfstep {

void add_contractions(OpList&) {}

}  // namespace halfstep
