// SPDX-License-Identifier: Apache-2.0
// ReduceLROnPlateau, which follows a metric, and schedules made of others.
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

// Keeps lr until a metric has not improved for `patience` evaluations, then multiplies it by factor, and so on down to min_lr. As
// in PyTorch, a metric improves below best (1 - threshold) (min, rel) or best - threshold (min, abs), above best (1 + threshold)
// (max, rel) or best + threshold (max, abs).
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
  void observe(double metric) override;  // call once after each evaluation
  // PyTorch's name of observe. It takes only the metric, a number or a tensor of one element.
  template <class Metric>
  requires(std::is_arithmetic_v<Metric> && !std::same_as<Metric, bool>) void step(Metric metric) { observe(double(metric)); }
  template <std::derived_from<Tensor> Metric>
  void step(const Metric& metric) {
    observe(metric.template item<double>());
  }
  std::map<std::string, double> state_dict() const override;
  void load_state_dict(const std::map<std::string, double>& state) override;

 private:
  // set_count keeps it, since the reductions that led to it do not follow from a count.
  FirstRate first_rate(size_t group) const override { return {Schedule::first_rate(group).value, false}; }
  bool is_better(double metric) const;
  double best_;
  int64_t bad_evaluations_ = 0;  // since the last improvement
  int64_t cooldown_left_ = 0;    // evaluations
  int64_t reductions_ = 0;
};

// A schedule made of other schedules of the same optimizer. The counts of these parts are not used.
class CompositeSchedule : public Schedule {
 public:
  bool is_absolute() const override;
  bool covers(int64_t count) const override;
  bool holds(int64_t count) const override;  // true if a running part does
  std::optional<double> held_for(double rate, int64_t count) const override;
  double held_rate(double held, int64_t count) const override;
  using Schedule::observe;
  std::optional<double> momentum(int64_t count) const override;
  void observe(double metric) override;
  std::map<std::string, double> state_dict() const override;
  void load_state_dict(const std::map<std::string, double>& state) override;
  std::string describe() const override;

 protected:
  CompositeSchedule(Optimizer& optimizer, const char* name, std::vector<SchedulePtr> parts);
  FirstRate first_rate(size_t group) const override;  // that of the part that was made first
  // Returns the count that a part sees, or nothing if the part is not active.
  virtual std::optional<int64_t> count_of(size_t part, int64_t count) const = 0;
  const std::vector<SchedulePtr>& parts() const { return parts_; }

 private:
  const char* name_;
  std::vector<SchedulePtr> parts_;
};

// Applies all parts at once: each takes the rate of the one before as its initial rate. With several parts, none may be absolute
// (LambdaLR, CosineAnnealingWarmRestarts, OneCycleLR, CyclicLR): PyTorch accepts such a part, and at each step it undoes those
// before it.
class ChainedScheduler : public CompositeSchedule {
 public:
  ChainedScheduler(Optimizer& optimizer, std::vector<SchedulePtr> schedules);
  double rate(double initial, int64_t count) const override;
  std::optional<double> initial_for(double rate, int64_t count) const override;
  int64_t section(int64_t count) const override;

 private:
  std::optional<int64_t> count_of(size_t, int64_t count) const override { return count; }
};

// Applies one after the other: schedules[i] from milestones[i - 1] on, where it begins with its own step 0 and the initial rate of
// the optimizer, even if the user has set another or an earlier schedule has reached one; a MultiplicativeLR instead begins with
// function(0) times the rate that was reached, as in PyTorch.
struct SequentialLROptions {
  ByName by_name = ByName();
  Required<std::vector<SchedulePtr>> schedulers;
  Required<std::vector<int64_t>> milestones;
};
class SequentialLR : public CompositeSchedule {
 public:
  SequentialLR(Optimizer& optimizer, const SequentialLROptions& o) : SequentialLR(optimizer, *o.schedulers, *o.milestones) {}
  SequentialLR(Optimizer& optimizer, std::vector<SchedulePtr> schedules, std::vector<int64_t> milestones);
  double rate(double initial, int64_t count) const override;
  std::optional<double> initial_for(double rate, int64_t count) const override;
  int64_t section(int64_t count) const override;

 private:
  FirstRate first_rate(size_t group) const override { return {optimizer().initial_lr(group), false}; }
  std::optional<int64_t> count_of(size_t part, int64_t count) const override;
  size_t part_at(int64_t count) const;
  std::vector<int64_t> milestones_;
};

// Grows linearly from lr / steps to lr, or to the first rate of `schedule`, which then follows with its own step 0.
class WarmupLR : public CompositeSchedule {
 public:
  WarmupLR(Optimizer& optimizer, SchedulePtr schedule, int64_t steps);
  double rate(double initial, int64_t count) const override;
  std::optional<double> initial_for(double rate, int64_t count) const override;
  bool holds(int64_t count) const override { return count >= steps_ && CompositeSchedule::holds(count); }
  int64_t section(int64_t count) const override { return parts()[0]->section(count < steps_ ? 0 : count - steps_); }

 private:
  std::optional<int64_t> count_of(size_t, int64_t count) const override { return count < steps_ ? 0 : count - steps_; }
  int64_t steps_;
};

// Advances a schedule once in `steps` steps, for schedules that PyTorch steps once an epoch.
class Epochs : public CompositeSchedule {
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
