#include "framework/ops/registry.h"

namespace halfstep {

void add_vectors(OpList&) {}

}  // namespace halfstep
