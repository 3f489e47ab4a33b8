// SPDX-License-Identifier: Apache-2.0
#include "apps/config/dead_rates.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "framework/base/check.h"

namespace halfstep::app {
namespace {

constexpr double kDeadShare = 1e-6;    // of the largest rate: smaller ones change no weight of 32 bits noticeably
constexpr int64_t kDeadPart = 10;      // dead steps are a fault above 1/10 of the run
constexpr double kFallen = 0.5;        // share that the last rate of a useful schedule does not exceed
constexpr int64_t kMostPoints = 1000;  // or up to twice as many

// The rates of a run, as shares of the largest: of several groups the larger share.
class RateCurve {
 public:
  RateCurve(const Optimizer& optimizer, const Schedule& schedule, int64_t steps)
      : optimizer_(optimizer),
        schedule_(schedule),
        steps_(steps),
        stride_(std::max<int64_t>(steps / kMostPoints, 1)),
        largest_(optimizer.param_groups().size()) {
    for (int64_t step = 0; step < steps && schedule.covers(step); step += stride_) points_.push_back(step);
    for (size_t g = 0; g < largest_.size(); ++g)
      for (const int64_t step : points_) largest_[g] = std::max(largest_[g], schedule.rate(optimizer.initial_lr(g), step));
    for (const int64_t step : points_) {
      const bool is_dead = share(step) <= kDeadShare;
      if (is_dead && alive_) ++dead_;
      alive_ = alive_ || !is_dead;
    }
  }

  // Returns whether much of the run is dead. What comes before the first rate, as a delay by ConstantLR, is meant so.
  bool is_dead() const { return dead_ > 1 && dead_ * kDeadPart > std::ssize(points_); }
  double last_share() const { return points_.empty() ? 0 : share(points_.back()); }

  // Describes where the rate is dead.
  std::string text() const {
    const std::optional<int64_t> end = end_of_training();
    if (!end)
      return joined("makes the rate less than a millionth of its largest in ", dead_ * 100 / std::ssize(points_), " % of the ",
                    steps_, " steps, which change next to nothing");
    if (share(*end) == 0)
      return joined("makes the rate 0 after step ", *end, " of ", steps_, ", so that no later step changes a weight");
    return joined("makes the rate less than a millionth of its largest after step ", *end, " of ", steps_,
                  ", where steps change next to nothing");
  }

 private:
  double share(int64_t step) const {
    double out = 0;
    for (size_t g = 0; g < largest_.size(); ++g)
      if (largest_[g] > 0) out = std::max(out, schedule_.rate(optimizer_.initial_lr(g), step) / largest_[g]);
    return out;
  }

  // Returns the number of steps before the dead ones at the end; nothing if these alone are not much of the run.
  std::optional<int64_t> end_of_training() const {
    size_t tail = 0;
    while (tail < points_.size() && share(points_[points_.size() - 1 - tail]) <= kDeadShare) ++tail;
    if (int64_t(tail) * kDeadPart <= std::ssize(points_) || tail == points_.size()) return {};
    int64_t end = points_[points_.size() - tail];
    while (share(end - 1) <= kDeadShare) --end;
    return end;
  }

  const Optimizer& optimizer_;
  const Schedule& schedule_;
  int64_t steps_, stride_;
  std::vector<double> largest_;  // of each group
  std::vector<int64_t> points_;  // steps that are looked at
  int64_t dead_ = 0;             // points after the first rate
  bool alive_ = false;
};

// Returns the schedules that count steps counting epochs; null: there are none.
Json in_epochs(Json scheduler) {
  bool changed = false;
  const auto change = [&](Json& self) {
    if (self.is_object() && self.value("interval", "") == "step") self["interval"] = "epoch", changed = true;
  };
  if (scheduler.is_array())
    for (Json& self : scheduler) change(self);
  else
    change(scheduler);
  return changed ? scheduler : Json();
}

// Returns the schedule that ends with the run, and the key that said otherwise; null: it is none of these.
std::pair<Json, std::string> to_the_end(Json scheduler) {
  if (scheduler.is_object())
    for (const Field& f : scheduler_catalog().row(scheduler).component.fields)
      if ((f.key == "T_max" || f.key == "total_iters") && !f.needed && f.fallback.is_null() && !scheduler[f.key].is_null()) {
        scheduler[f.key] = nullptr;
        return {std::move(scheduler), f.key};
      }
  return {};
}

// Returns whether the rates of this schedule fall, and are not dead.
bool is_better(const Json& scheduler, Optimizer& optimizer, const RunLength& run) {
  if (scheduler.is_null()) return false;
  try {
    const std::shared_ptr<Schedule> schedule = build_scheduler(scheduler, optimizer, run);
    const RateCurve curve(optimizer, *schedule, run.total_steps);
    return !curve.is_dead() && curve.last_share() <= kFallen;
  } catch (const Error&) { return false; }
}

}  // namespace

std::string dead_rates(const Json& scheduler, Optimizer& optimizer, const Schedule& schedule, const RunLength& run,
                       bool steps_are_known) {
  const RateCurve curve(optimizer, schedule, run.total_steps);
  if (!curve.is_dead()) return {};
  if (steps_are_known && is_better(in_epochs(scheduler), optimizer, run))
    return curve.text() + (scheduler.is_array() ? "; the schedules count steps: \"interval\": \"epoch\" lets them count epochs"
                                                : "; it counts steps: \"interval\": \"epoch\" lets it count epochs");
  const auto [longer, key] = to_the_end(scheduler);
  if (is_better(longer, optimizer, run)) return curve.text() + "; without " + key + " it falls to the end of the run";
  return curve.text() + "; train --lr-preview prints the rates";
}

}  // namespace halfstep::app
