// SPDX-License-Identifier: Apache-2.0
// Learning rates: a search for the largest that a model tolerates, and a preview of a schedule.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "apps/config/config.h"
#include "apps/schema/json.h"

namespace halfstep::app {

// Returns the rate of each group after 0, 1, ... applied steps: {"steps": total, "step": [...], "lr": [[...] for each group]}, and
// "momentum": [...] if the schedule moves it. Thins more than `most_points` steps evenly, and keeps the last.
Json preview_rates(const Config& config, int64_t most_points = 10000);

// The learning rates of a search, and its number of steps.
struct RateRange {
  double from = 1e-7, to = 10;
  int64_t steps = 100;
};
struct RatePoint {
  double lr, loss;  // loss: of the step with that rate
  double smooth;    // running mean of the losses so far: in each step their weights are multiplied by 0.9
};
struct RateSearch {
  std::vector<RatePoint> points;
  bool diverged = false;           // ended early: the loss reached four times its minimum, or was not finite
  std::optional<double> steepest;  // where the smooth loss falls fastest over log lr: a good rate; unset if it never falls
  std::optional<double> lowest;    // where it is lowest: too large a rate
};
// Trains the config's model from its first weights with rates that grow by a constant factor over `range` (Smith 2017). Groups
// keep their ratios to the first one's rate. Writes nothing. Throws ValueError for an empty range.
RateSearch find_rate(Config config, const RateRange& range);

}  // namespace halfstep::app
