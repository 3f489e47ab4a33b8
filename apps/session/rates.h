// SPDX-License-Identifier: Apache-2.0
// Learning rates before training: the rates of a schedule, and a search for the largest rate that a model tolerates.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "apps/config/config.h"
#include "apps/schema/json.h"

namespace halfstep::app {

// The rate of each group of parameters after 0, 1, ... applied steps: {"steps": all, "step": [...], "lr": [[...] a group]}, and
// "momentum": [...] where the schedule moves it. More than `most` steps are thinned out evenly, the last stays.
Json preview_rates(const Config& config, int64_t most = 10000);

struct RateRange {
  double from = 1e-7, to = 10;
  int64_t steps = 100;
};
struct RatePoint {
  double lr, loss;  // loss: of the step taken with that rate
  double smooth;    // mean of the losses so far, in which one fades by 0.9 a step
};
struct RateSearch {
  std::vector<RatePoint> points;
  bool diverged = false;            // ended early: the loss grew to four times its best, or was not finite
  std::optional<double> steepest;   // where the smooth loss falls fastest over log lr: a good rate; nothing where it never falls
  std::optional<double> lowest;     // where it was lowest: too large a rate
};
// Trains the config's model from its first weights with rates that grow from one to the other by a constant factor (Smith 2017).
// Rates of groups keep their proportions to the first one's. Nothing is written. Throws ValueError for an empty range.
RateSearch find_rate(Config config, const RateRange& range);

}  // namespace halfstep::app
