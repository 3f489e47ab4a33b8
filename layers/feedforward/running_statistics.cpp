// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/running_statistics.h"

namespace halfstep {

RunningStatistics::RunningStatistics(Module& model) {
  model.apply([&](Module& m) {
    auto* const norm = dynamic_cast<RunningNorm*>(&m);
    if (!norm || !norm->running_mean.defined() || norm->has_frozen_statistics()) return;
    norms_.emplace_back(norm, norm->momentum());
    norm->reset_running_stats();
    norm->set_momentum({});
  });
  if (!any()) return;
  for (Module* const m : model.modules()) modes_.emplace_back(m, m->training());
  model.train();
}

RunningStatistics::~RunningStatistics() {
  for (const auto& [norm, momentum] : norms_) norm->set_momentum(momentum);
  for (const auto& [m, training] : modes_) m->train(training);  // restores children after their parents, which set them too
}

}  // namespace halfstep
