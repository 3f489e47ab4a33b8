// SPDX-License-Identifier: Apache-2.0
// The base of schedules; optim/schedule.h has them.
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

// Neither copied nor moved, as its optimizer. Throws ValueError once that has been destroyed.
class Schedule {
 public:
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;
  // Call after each optimizer step: counts it if it was applied, and sets the learning rate for the next. Throws ValueError beyond
  // the end of the schedule (OneCycleLR). It takes only a bool; pass a metric to observe.
  void step() { step_if(true); }
  template <std::same_as<bool> Applied>
  void step(Applied applied) {
    step_if(applied);
  }
  int64_t count() const;                    // applied steps
  // Sets the count and the rates after so many steps, for resuming without load_state_dict. Before the first step these are
  // relative to the optimizer's initial rate, also if that had decayed, or was loaded, before the schedule was made. One of several
  // schedules that multiply resumes by load_state_dict only.
  void set_count(int64_t count);
  double lr(size_t group = 0) const;        // the optimizer's current rate
  std::vector<double> get_last_lr() const;  // of all groups
  // Returns the rate of a group with the rate `initial` after `count` applied steps.
  virtual double rate(double initial, int64_t count) const = 0;
  // Returns the initial rate with which rate(initial, count) is `rate`: the schedule continues from it if the user sets that rate.
  // Nothing if there is none, or if the user's rate counts for the next step only.
  virtual std::optional<double> initial_for(double rate, int64_t count) const;
  // Returns whether a rate that the user sets stays, because the schedule's own is 0 or its minimum. held_for then returns the
  // value to remember for that rate, and held_rate the rate at a later count from that value: in a combination of schedules, some
  // may hold while others move.
  virtual bool holds(int64_t) const { return false; }
  virtual std::optional<double> held_for(double rate, int64_t) const { return rate; }
  virtual double held_rate(double held, int64_t) const { return held; }
  // Returns the section of a schedule in which `count` is; a rate that the user sets has no effect beyond its section: a part of a
  // SequentialLR that begins anew.
  virtual int64_t section(int64_t) const { return 0; }
  // Returns whether rates do not depend on the rate before, as those of PyTorch's closed forms. A ChainedScheduler takes no such
  // part.
  virtual bool is_absolute() const { return false; }
  // Returns the factor with which the schedule, within a SequentialLR, begins at the rate that the one before has reached. Others
  // begin at the initial rate.
  virtual std::optional<double> entry_factor() const { return {}; }
  // Returns whether there is a rate after `count` applied steps; false beyond the end of a schedule that must not be stepped
  // further.
  virtual bool covers(int64_t) const { return true; }
  // Returns the initial rate of a group: the optimizer's, or the one that follows from a rate that the user set.
  double initial_lr(size_t group) const;
  // Returns the rate of a group after `count` applied steps.
  double rate_of(size_t group, int64_t count) const;
  // Returns the momentum at a count, if the schedule moves it.
  virtual std::optional<double> momentum(int64_t) const { return {}; }
  bool moves_momentum() const { return momentum(0).has_value() && optimizer().has_momentum(); }
  virtual std::string describe() const = 0;

  // Takes the result of an evaluation, for schedules that use it: ReduceLROnPlateau.
  virtual void observe(double) {}
  template <std::same_as<bool> Metric>
  void observe(Metric) = delete;
  // Returns the state: the count, the current rates and those that the user has set since the last step.
  virtual std::map<std::string, double> state_dict() const;
  virtual void load_state_dict(const std::map<std::string, double>& state);  // throws ValueError
  int64_t revision() const { return revision_; }  // grows when rates change for another reason than the count

  // Makes `sync_host` of `owner` update the count before it is read or set: see optim/device_rates.h. end_device_count ends that,
  // unless it has another owner by then.
  void use_device_count(const void* owner, std::function<void()> sync_host) {
    count_owner_ = owner;
    sync_host_ = std::move(sync_host);
  }
  void end_device_count(const void* owner) {
    if (owner == count_owner_) use_device_count(nullptr, nullptr);
  }
  const Lifetime& lifetime() const { return lifetime_; }

 protected:
  explicit Schedule(Optimizer& optimizer);
  void follow();  // adopts the rates that the user or another schedule set
  // Sets the first learning rate. As in PyTorch it continues from the current one, unless the schedule is absolute. Call it at the
  // end of a constructor.
  void start();
  // Returns the rate of a group from which the schedule starts, and whether set_count leaves that: others have stepped to it.
  struct FirstRate {
    double value;
    bool reached;
  };
  virtual FirstRate first_rate(size_t group) const;
  void changed();  // sets the rates anew; call when they changed though the count did not
  Optimizer& optimizer() const { return optimizer_.get("schedule", "optimizer"); }

 private:
  friend class DeviceRates;
  friend class CompositeSchedule;
  void step_if(bool applied);
  // Sets rates and momenta after `count` steps. keep_set: except rates that the user set in the meantime.
  void apply_rates(int64_t count, bool keep_set);
  Watched<Optimizer> optimizer_;
  int64_t count_ = 0, revision_ = 0;
  bool continues_ = false;  // no step yet, and `initial_` has rates to which others have stepped
  // A rate that the user set.
  struct UserRate {
    double value;        // the initial rate that follows from it; while_holding: the result of held_for
    int64_t count;       // when it was set
    bool while_holding;  // the schedule held the rate then
  };
  const UserRate* user_rate(size_t group, int64_t count) const;  // null: none applies
  std::map<size_t, double> initial_;                             // by group, if it is not the optimizer's
  std::map<size_t, UserRate> user_rates_;                        // by group
  std::function<void()> sync_host_;
  const void* count_owner_ = nullptr;
  uint64_t id_;  // unique
  Lifetime lifetime_;  // last
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
