// SPDX-License-Identifier: Apache-2.0
#include "apps/session/lr_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "amp/step/train_step.h"
#include "apps/session/evaluate.h"
#include "apps/session/session.h"

namespace halfstep::app {

Json preview_rates(const Config& config, int64_t most_points) {
  const Session session = make_session(config);
  Json out = {
      {"steps", session.total_steps}, {"steps_per_epoch", session.steps_per_epoch}, {"step", Json::array()}, {"lr", Json::array()}};
  const size_t groups = session.optimizer->param_groups().size();
  for (size_t g = 0; g < groups; ++g) out["lr"].push_back(Json::array());
  const bool moves_momentum = session.schedule && session.schedule->moves_momentum();
  if (moves_momentum) out["momentum"] = Json::array();
  const int64_t stride = std::max<int64_t>((session.total_steps + most_points - 1) / most_points, 1);
  for (int64_t step = 0; step < session.total_steps; step += stride) {
    const int64_t at = step + stride < session.total_steps ? step : session.total_steps - 1;
    out["step"].push_back(at);
    for (size_t g = 0; g < groups; ++g) {
      const double initial = session.optimizer->initial_lr(g);
      out["lr"][g].push_back(session.schedule ? session.schedule->rate(initial, at) : initial);
    }
    if (moves_momentum) out["momentum"].push_back(*session.schedule->momentum(at));
  }
  return out;
}

namespace {

constexpr double kDecay = 0.9, kNewWeight = 0.1;  // of the running mean, and of a loss in it
constexpr double kDivergedFactor = 4;             // times the lowest smooth loss
constexpr size_t kSurePoints = 5;                 // points of a search that does not end early
constexpr int64_t kLeastSteps = 10;

// Finds the lowest point and the steepest one before it. Slopes are over five points.
void mark_slopes(RateSearch& out) {
  const auto lowest = std::min_element(out.points.begin(), out.points.end(),
                                       [](const RatePoint& a, const RatePoint& b) { return a.smooth < b.smooth; });
  if (lowest != out.points.end() && std::isfinite(lowest->smooth)) out.lowest = lowest->lr;
  double fastest = 0;
  constexpr size_t kHalf = 2;  // points of a slope on each side
  for (size_t i = kHalf; i + kHalf < out.points.size() && i <= size_t(lowest - out.points.begin()); ++i) {
    const RatePoint &a = out.points[i - kHalf], &b = out.points[i + kHalf];
    const double slope = (b.smooth - a.smooth) / std::log(b.lr / a.lr);
    if (std::isfinite(slope) && slope < fastest) fastest = slope, out.steepest = out.points[i].lr;
  }
}

}  // namespace

RateSearch find_rate(Config config, const RateRange& range) {
  check<ValueError>(range.from > 0 && range.to > range.from && std::isfinite(range.to), "lr-find", "needs 0 < from < to, got from ",
                    range.from, " and to ", range.to);
  check<ValueError>(range.steps >= kLeastSteps, "lr-find", "needs at least 10 steps, got ", range.steps);
  config.scheduler = Json();
  TrainStepOptions options = step_options(config);
  Session session = make_session(std::move(config), nullptr, FirstValues::with_files);
  options.device = session.device;
  TrainStep step(*session.model, *session.loss, *session.optimizer, session.scaler, nullptr, options);
  const size_t groups = session.optimizer->param_groups().size();
  const double first = session.optimizer->initial_lr(0);
  check<ValueError>(first > 0, "lr-find", "optimizer.lr must be > 0, as other groups keep their proportion to it");

  RateSearch out;
  double mean = 0, weight = 0, lowest = INFINITY, loss_sum = 0, denominator = 0;
  bool has_target = false;  // that counts
  session.model->train();
  while (int64_t(out.points.size()) < range.steps) {
    const double share = double(out.points.size()) / double(range.steps - 1);
    const double rate = range.from * std::pow(range.to / range.from, share);
    for (size_t g = 0; g < groups; ++g) session.optimizer->set_lr(rate * session.optimizer->initial_lr(g) / first, g);
    std::optional<Batch> batch = session.train->next();
    StepResult result;
    if (batch) {
      const auto [input, target] = on_device(*batch, session.device);
      result = step(input, target);
      const double own_denominator = session.loss->denominator(target).value();
      if (own_denominator != 0) loss_sum += result.loss.item<double>() * own_denominator;
      denominator += own_denominator;
      has_target = has_target || own_denominator != 0;
    } else {
      result = step.flush();  // end of an epoch
      check<ConfigError>(has_target, "lr-find",
                         "no target of the training data counts: all are loss.ignore_index or of a class of ", "weight 0",
                         Help{"give the data targets that the loss counts"});
    }
    if (!result.stepped || denominator == 0) continue;
    const double loss = loss_sum / denominator;
    loss_sum = 0, denominator = 0;
    mean = kDecay * mean + kNewWeight * loss, weight = kDecay * weight + kNewWeight;
    const double smooth = mean / weight;
    out.points.push_back({rate, loss, smooth});
    if (!std::isfinite(smooth) || (out.points.size() > kSurePoints && smooth > kDivergedFactor * std::abs(lowest))) {
      out.diverged = true;
      break;
    }
    lowest = std::min(lowest, smooth);
  }
  mark_slopes(out);
  return out;
}

}  // namespace halfstep::app
