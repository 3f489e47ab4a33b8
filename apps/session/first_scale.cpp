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

double first_scale(const GradScalerOptions& options, Session& session, TrainStep& step, ProcessGroup* group) {
  const LoaderState before = session.train->state();
  session.model->train();
  double largest = 2 * options.init_scale;
  for (int64_t i = 0; i < std::min(kBatches, session.batches_per_epoch); ++i) {
    const std::optional<Batch> batch = session.train->next();
    if (!batch) break;
    const auto [input, target] = on_device(*batch, session.device);
    const double scale = largest_scale(step.described(input, target, group ? std::optional(session.train->part()) : std::nullopt));
    if (scale > 0) largest = std::min(largest, scale);
  }
  session.train->set_state(before);
  if (group)
    for (const std::vector<double>& of_rank : group->gather(std::vector<double>{largest})) largest = std::min(largest, of_rank[0]);
  return largest / 2;
}

}  // namespace halfstep::app
