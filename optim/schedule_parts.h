// SPDX-License-Identifier: Apache-2.0
// A schedule that looks at a metric, and schedules made of others.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "optim/schedule.h"

namespace halfstep {

// lr until a metric has not improved for `patience` evaluations, then lr factor, and so on down to min_lr. As in PyTorch, a metric
// improves below best (1 - threshold) (min, rel) or best - threshold (min, abs), above best (1 + threshold) (max, rel) or
// best + threshold (max, abs).
struct PlateauOptions {
  std::string mode = "min";
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  std::string threshold_mode = "rel";
  int64_t cooldown = 0;
  double min_lr = 0, eps = 1e-8;
  static const OptionList<PlateauOptions>& list();
};
class ReduceLROnPlateau : public ListedSchedule<"ReduceLROnPlateau", PlateauOptions, Schedule> {
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options = {});
  template <std::convertible_to<std::string> Mode>
  ReduceLROnPlateau(Optimizer& optimizer, const Mode& mode, double factor = defaults().factor,
                    int64_t patience = defaults().patience)
      : ReduceLROnPlateau(optimizer, PlateauOptions{.mode = mode, .factor = factor, .patience = patience}) {}
  double rate(double initial, int64_t count) const override;
  std::optional<double> initial_for(double rate, int64_t count) const override;
  using Schedule::observe;
  void observe(double metric) override;  // once an evaluation
  // PyTorch's name of observe. It takes the metric, a number or a tensor of one element, and nothing else.
  template <class Metric>
  requires(std::is_arithmetic_v<Metric> && !std::same_as<Metric, bool>) void step(Metric metric) { observe(double(metric)); }
  template <std::derived_from<Tensor> Metric>
  void step(const Metric& metric) {
    observe(metric.template item<double>());
  }
  std::map<std::string, double> state_dict() const override;
  void load_state_dict(const std::map<std::string, double>& state) override;

 private:
  bool is_better(double metric) const;
  double best_;
  int64_t bad_ = 0, cooling_ = 0, reductions_ = 0;
};

// A schedule made of other schedules, all of the same optimizer. The counts of these parts are not used.
class ScheduleOfOthers : public Schedule {
 public:
  bool is_absolute() const override;
  bool covers(int64_t count) const override;
  bool holds(int64_t count) const override;  // where a part that is running does
  std::optional<double> held_for(double rate, int64_t count) const override;
  double held_rate(double held, int64_t count) const override;
  using Schedule::observe;
  std::optional<double> momentum(int64_t count) const override;
  void observe(double metric) override;
  std::map<std::string, double> state_dict() const override;
  void load_state_dict(const std::map<std::string, double>& state) override;
  std::string describe() const override;

 protected:
  ScheduleOfOthers(Optimizer& optimizer, const char* name, std::vector<SchedulePtr> parts);
  bool is_made_of_others() const override { return true; }
  // The count that a part sees, or nothing where it has no say.
  virtual std::optional<int64_t> count_of(size_t part, int64_t count) const = 0;
  const std::vector<SchedulePtr>& parts() const { return parts_; }

 private:
  const char* name_;
  std::vector<SchedulePtr> parts_;
};

// All at once: each takes the rate of the one before as its initial rate. Of several, none may be absolute (LambdaLR,
// CosineAnnealingWarmRestarts, OneCycleLR, CyclicLR): PyTorch takes such a part, and at each step it undoes those before it.
class ChainedScheduler : public ScheduleOfOthers {
 public:
  ChainedScheduler(Optimizer& optimizer, std::vector<SchedulePtr> schedules);
  double rate(double initial, int64_t count) const override;
  std::optional<double> initial_for(double rate, int64_t count) const override;

 private:
  std::optional<int64_t> count_of(size_t, int64_t count) const override { return count; }
};

// One after the other: schedules[i] from milestones[i - 1] on, where it begins with its own step 0 and the initial rate, whatever
// rate the user has set before, but a MultiplicativeLR with function(0) times the rate that was reached, as in PyTorch.
struct SequentialLROptions {
  ByName by_name = ByName();
  Required<std::vector<SchedulePtr>> schedulers;
  Required<std::vector<int64_t>> milestones;
};
class SequentialLR : public ScheduleOfOthers {
 public:
  SequentialLR(Optimizer& optimizer, const SequentialLROptions& o) : SequentialLR(optimizer, *o.schedulers, *o.milestones) {}
  SequentialLR(Optimizer& optimizer, std::vector<SchedulePtr> schedules, std::vector<int64_t> milestones);
  double rate(double initial, int64_t count) const override;
  std::optional<double> initial_for(double rate, int64_t count) const override;
  int64_t section(int64_t count) const override;

 private:
  std::optional<int64_t> count_of(size_t part, int64_t count) const override;
  size_t part_at(int64_t count) const;
  std::vector<int64_t> milestones_;
};

// A line from lr / steps up to lr, or to where `schedule` begins, which then follows with its own step 0.
class WarmupLR : public ScheduleOfOthers {
 public:
  WarmupLR(Optimizer& optimizer, SchedulePtr schedule, int64_t steps);
  double rate(double initial, int64_t count) const override;
  std::optional<double> initial_for(double rate, int64_t count) const override;
  bool holds(int64_t count) const override { return count >= steps_ && ScheduleOfOthers::holds(count); }
  int64_t section(int64_t count) const override { return parts()[0]->section(count < steps_ ? 0 : count - steps_); }

 private:
  std::optional<int64_t> count_of(size_t, int64_t count) const override { return count < steps_ ? 0 : count - steps_; }
  int64_t steps_;
};

// A schedule whose clock moves once in `steps` steps, as PyTorch's do that are stepped once an epoch.
class Epochs : public ScheduleOfOthers {
 public:
  Epochs(Optimizer& optimizer, SchedulePtr schedule, int64_t steps);
  double rate(double initial, int64_t count) const override { return parts()[0]->rate(initial, count / steps_); }
  std::optional<double> initial_for(double rate, int64_t count) const override {
    return parts()[0]->initial_for(rate, count / steps_);
  }
  int64_t section(int64_t count) const override { return parts()[0]->section(count / steps_); }
  std::string describe() const override { return parts()[0]->describe() + " by epochs"; }

 private:
  std::optional<int64_t> count_of(size_t, int64_t count) const override { return count / steps_; }
  int64_t steps_;
};

}  // namespace halfstep
