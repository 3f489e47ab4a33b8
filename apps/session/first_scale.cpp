// SPDX-License-Identifier: Apache-2.0
#include "apps/session/first_scale.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "amp/diagnosis/diagnose.h"

namespace halfstep::app {
namespace {

constexpr int64_t kBatches = 8;

}  // namespace

double first_scale(const GradScalerOptions& options, Session& s, TrainStep& step, ProcessGroup* group) {
  const LoaderState place = s.train->state();
  s.model->train();
  double fits = 2 * options.init_scale;
  for (int64_t i = 0; i < std::min(kBatches, s.batches_per_epoch); ++i) {
    const std::optional<Batch> batch = s.train->next();
    if (!batch) break;
    const auto [input, target] = on_device(*batch, s.device);
    const double scale = largest_scale(step.described(input, target, group ? std::optional(s.train->part()) : std::nullopt));
    if (scale > 0) fits = std::min(fits, scale);
  }
  s.train->set_state(place);
  if (group)
    for (const std::vector<double>& of : group->gather(std::vector<double>{fits})) fits = std::min(fits, of[0]);
  return fits / 2;
}

}  // namespace halfstep::app
