// SPDX-License-Identifier: Apache-2.0
// What all schedules share; optim/schedule.h has them.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace halfstep {

class Schedule {
 public:
  virtual ~Schedule() = default;
  // After each optimizer step: counts it when it was applied, and sets the learning rate for the next. Throws ValueError where the
  // schedule has ended (OneCycleLR). It takes only a bool: a metric is for observe.
  void step() { step_if(true); }
  template <std::same_as<bool> Applied>
  void step(Applied applied) {
    step_if(applied);
  }
  int64_t count() const;                       // applied steps
  void set_count(int64_t count);               // resume: also sets the learning rate
  double lr(size_t group = 0) const;           // the optimizer's current rate
  std::vector<double> get_last_lr() const;     // of all groups
  // The rate of a group that was built with `initial`, after `count` applied steps.
  virtual double rate(double initial, int64_t count) const = 0;
  // The initial rate with which rate(initial, count) is `rate`: the schedule continues from it if the user sets that rate. Nothing
  // where there is none, or where what the user sets counts until the next step only.
  virtual std::optional<double> initial_for(double rate, int64_t count) const;
  // Does a rate that the user sets stay, since the schedule's own is 0, or its least? Then what it keeps of it, and the rate again:
  // those of several schedules, of which some move on, differ.
  virtual bool holds(int64_t) const { return false; }
  virtual std::optional<double> held_for(double rate, int64_t) const { return rate; }
  virtual double held_rate(double held, int64_t) const { return held; }
  // Rates that the user sets have no effect beyond their section: a part of a SequentialLR that begins anew.
  virtual int64_t section(int64_t) const { return 0; }
  // Do rates not depend on the rate before, as those of PyTorch's closed forms? A ChainedScheduler takes no such part.
  virtual bool is_absolute() const { return false; }
  // Of a schedule that begins, within a SequentialLR, at this factor times the rate that the one before has reached. Others begin
  // at the initial rate.
  virtual std::optional<double> entry_factor() const { return {}; }
  // Is there a rate after `count` applied steps? False beyond the end of a schedule that must not be stepped further.
  virtual bool covers(int64_t) const { return true; }
  // The initial rate of a group: the optimizer's, or that which follows from a rate that the user set.
  double initial_lr(size_t group) const;
  // The rate of a group after `count` applied steps.
  double rate_of(size_t group, int64_t count) const;
  // The momentum then, of a schedule that moves it.
  virtual std::optional<double> momentum(int64_t) const { return {}; }
  bool moves_momentum() const { return momentum(0).has_value() && optimizer_.has_momentum(); }
  virtual std::string describe() const = 0;

  // What an evaluation found, for schedules that look at it: ReduceLROnPlateau.
  virtual void observe(double) {}
  template <std::same_as<bool> Metric>
  void observe(Metric) = delete;
  // What must be kept of it: the count, the rates of now and those that the user has set since its last step.
  virtual std::map<std::string, double> state_dict() const;
  virtual void load_state_dict(const std::map<std::string, double>& state);  // throws ValueError
  int64_t revision() const { return revision_; }  // grows when rates change that the count has nothing to do with

  // `settle` brings the count up to date before it is read or set: see optim/device_rates.h. Null ends that.
  void use_device_count(std::function<void()> settle) { settle_ = std::move(settle); }

 protected:
  explicit Schedule(Optimizer& optimizer);     // `optimizer` must outlive it
  void follow();                               // notes the rates that the user or another schedule set
  // Call at the end of a constructor: sets the first learning rate, of the rate that schedules made before have begun with.
  void start();
  virtual bool is_made_of_others() const { return false; }  // which begin with the optimizer's rate
  void changed();                              // rates changed though the count did not
  Optimizer& optimizer() const { return optimizer_; }

 private:
  friend class DeviceRates;
  friend class ScheduleOfOthers;
  void step_if(bool applied);
  // Sets rates and momenta after `count` steps. keep_set: not the rates that the user set in the meantime.
  void place(int64_t count, bool keep_set);
  Optimizer& optimizer_;
  int64_t count_ = 0, revision_ = 0;
  // Of a rate that the user set: the initial rate that it follows from, or what is kept of it while the schedule holds it.
  struct ByHand {
    double value;
    int64_t count;
    bool held;
  };
  const ByHand* by_hand(size_t group, int64_t count) const;  // null: none that counts
  std::map<size_t, double> initial_;   // by group, after another schedule changed its rate
  std::map<size_t, ByHand> by_hand_;   // by group
  std::function<void()> settle_;
  uint64_t id_;  // no other schedule has it
};
using SchedulePtr = std::shared_ptr<Schedule>;

// A schedule whose rate is initial * factor(count).
class FactorSchedule : public Schedule {
 public:
  virtual double factor(int64_t count) const = 0;
  double rate(double initial, int64_t count) const override { return initial * factor(count); }
  std::optional<double> initial_for(double rate, int64_t count) const override;
  bool holds(int64_t count) const override { return factor(count) == 0; }

 protected:
  using Schedule::Schedule;
};

}  // namespace halfstep
