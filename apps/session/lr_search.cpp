// SPDX-License-Identifier: Apache-2.0
#include "apps/session/lr_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "amp/step/train_step.h"
#include "apps/session/evaluate.h"
#include "apps/session/session.h"

namespace halfstep::app {

Json preview_rates(const Config& config, int64_t most) {
  const Session s = make_session(config);
  Json out = {{"steps", s.total_steps}, {"steps_per_epoch", s.steps_per_epoch}, {"step", Json::array()}, {"lr", Json::array()}};
  const size_t groups = s.optimizer->param_groups().size();
  for (size_t g = 0; g < groups; ++g) out["lr"].push_back(Json::array());
  const bool moves = s.schedule && s.schedule->moves_momentum();
  if (moves) out["momentum"] = Json::array();
  const int64_t stride = std::max<int64_t>((s.total_steps + most - 1) / most, 1);
  for (int64_t step = 0; step < s.total_steps; step += stride) {
    const int64_t at = step + stride < s.total_steps ? step : s.total_steps - 1;
    out["step"].push_back(at);
    for (size_t g = 0; g < groups; ++g) {
      const double initial = s.optimizer->initial_lr(g);
      out["lr"][g].push_back(s.schedule ? s.schedule->rate(initial, at) : initial);
    }
    if (moves) out["momentum"].push_back(*s.schedule->momentum(at));
  }
  return out;
}

namespace {

// Finds the lowest point and the steepest one before it. Slopes are over five points.
void mark_slopes(RateSearch& out) {
  const auto lowest = std::min_element(out.points.begin(), out.points.end(),
                                       [](const RatePoint& a, const RatePoint& b) { return a.smooth < b.smooth; });
  if (lowest != out.points.end() && std::isfinite(lowest->smooth)) out.lowest = lowest->lr;
  double fastest = 0;
  for (size_t i = 2; i + 2 < out.points.size() && i <= size_t(lowest - out.points.begin()); ++i) {
    const RatePoint &a = out.points[i - 2], &b = out.points[i + 2];
    const double slope = (b.smooth - a.smooth) / std::log(b.lr / a.lr);
    if (std::isfinite(slope) && slope < fastest) fastest = slope, out.steepest = out.points[i].lr;
  }
}

}  // namespace

RateSearch find_rate(Config config, const RateRange& range) {
  check<ValueError>(range.from > 0 && range.to > range.from && std::isfinite(range.to), "lr-find", "needs 0 < from < to, got from ",
                    range.from, " and to ", range.to);
  check<ValueError>(range.steps >= 10, "lr-find", "needs at least 10 steps, got ", range.steps);
  config.scheduler = Json();
  const TrainStepOptions given = step_options(config);
  Session s = make_session(std::move(config), nullptr, FirstValues::with_files);
  TrainStepOptions options = given;
  options.device = s.device;
  TrainStep step(*s.model, *s.loss, *s.optimizer, s.scaler, nullptr, options);
  const size_t groups = s.optimizer->param_groups().size();
  const double first = s.optimizer->initial_lr(0);
  check<ValueError>(first > 0, "lr-find", "optimizer.lr must be > 0, as other groups keep their proportion to it");

  RateSearch out;
  double mean = 0, weight = 0, best = INFINITY, window = 0, over = 0;
  bool counted = false;  // whether any target counts
  s.model->train();
  while (int64_t(out.points.size()) < range.steps) {
    const double share = double(out.points.size()) / double(range.steps - 1);
    const double rate = range.from * std::pow(range.to / range.from, share);
    for (size_t g = 0; g < groups; ++g) s.optimizer->set_lr(rate * s.optimizer->initial_lr(g) / first, g);
    std::optional<Batch> batch = s.train->next();
    StepResult result;
    if (batch) {
      const auto [input, target] = on_device(*batch, s.device);
      result = step(input, target);
      const double weight_of = s.loss->denominator(target).value();
      if (weight_of != 0) window += result.loss.item<double>() * weight_of;
      over += weight_of;
      counted = counted || weight_of != 0;
    } else {
      result = step.flush();  // end of an epoch
      check<ConfigError>(counted, "lr-find", "no target of the training data counts: all are loss.ignore_index or of a class of ",
                         "weight 0", Help{"give the data targets that the loss counts"});
    }
    if (!result.stepped || over == 0) continue;
    const double loss = window / over;
    window = 0, over = 0;
    mean = 0.9 * mean + 0.1 * loss, weight = 0.9 * weight + 0.1;
    const double smooth = mean / weight;
    out.points.push_back({rate, loss, smooth});
    if (!std::isfinite(smooth) || (out.points.size() > 5 && smooth > 4 * std::abs(best))) {
      out.diverged = true;
      break;
    }
    best = std::min(best, smooth);
  }
  mark_slopes(out);
  return out;
}

}  // namespace halfstep::app
