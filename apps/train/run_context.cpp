// SPDX-License-Identifier: Apache-2.0
#include "apps/train/run_context.h"

#include <utility>

#include "amp/step/data_parallel.h"
#include "apps/session/averaged_statistics.h"

namespace halfstep::app {

std::optional<double> RunContext::scale() const {
  return s.scaler.is_enabled() && !s.scaler.is_fixed() ? std::optional(s.scaler.get_scale()) : std::nullopt;
}

void RunContext::share_buffers() {
  if (group) average_buffers(*s.model, *group, double(std::exchange(own_samples, 0)));
}

void RunContext::make_averaged_statistics() {
  const double begin = clock.here();
  app::make_averaged_statistics(s, config.train, n.steps, group);
  clock.evaluated(clock.here() - begin);
}

}  // namespace halfstep::app
