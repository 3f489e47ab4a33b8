#include "framework/ops/registry.h"

namespace halfstep {

void add_ctc_loss(OpList&) {}

}  // namespace halfstep
