// SPDX-License-Identifier: Apache-2.0
#include "layers/running_statistics.h"

namespace halfstep {

RunningStatistics::RunningStatistics(Module& model) : model_(model), training_(model.training()) {
  model.apply([&](Module& m) {
    auto* const norm = dynamic_cast<RunningNorm*>(&m);
    if (!norm || !norm->running_mean.defined() || norm->has_frozen_statistics()) return;
    norms_.emplace_back(norm, norm->momentum());
    norm->reset_running_stats();
    norm->set_momentum({});
  });
  if (any()) model.train();
}

RunningStatistics::~RunningStatistics() {
  for (const auto& [norm, momentum] : norms_) norm->set_momentum(momentum);
  if (any()) model_.train(training_);
}

}  // namespace halfstep
