// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/reduce/averaged_weights.h"

#include "framework/base/log.h"

namespace halfstep {

void AveragedWeights::statistics_used() {
  if (!current_) return;
  ++warnings_;
  logging::warn_once(
      "averaged weights (SWA) are evaluated by running statistics of the weights before: call update_bn while the "
      "averages are in the parameters (layers/feedforward/running_statistics.h)");
}

}  // namespace halfstep
