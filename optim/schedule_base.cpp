// SPDX-License-Identifier: Apache-2.0
// The base of schedules: counts steps, follows rates that others set, and stores its state.
#include "optim/schedule_base.h"

#include <atomic>
#include <cmath>

#include "framework/base/log.h"

namespace halfstep {
namespace {

// Keys in a state, followed by the number of a group: the initial rate; the current rate; a rate that the user has set since the
// last step; the value of a UserRate that was not held, or that was held, and its count.
const std::string &kInitial = *new std::string("initial_lr."), &kRate = *new std::string("lr."),
                  &kSet = *new std::string("set_lr."), &kByHand = *new std::string("by_hand_lr."),
                  &kHeld = *new std::string("held_lr."), &kCount = *new std::string("count_of_lr.");

}  // namespace

Schedule::Schedule(Optimizer& optimizer) : optimizer_(optimizer) {
  static std::atomic<uint64_t> next{1};
  id_ = next++;
  optimizer.begin_schedule();  // before a constructor reads initial rates
}

Schedule::FirstRate Schedule::first_rate(size_t group) const {
  const Optimizer& o = optimizer();
  return {o.lr_[group], o.stepped_by_ != 0 || o.rates_loaded_};
}

void Schedule::start() {
  Optimizer& o = optimizer();
  for (size_t g = 0; g < o.groups_.size() && !is_absolute(); ++g) {
    const FirstRate first = first_rate(g);
    if (first.value == o.initial_lr_[g]) continue;
    initial_[g] = first.value;
    continues_ = continues_ || (first.reached && !o.written_[g]);
  }
  apply_rates(0, /*keep_set=*/false);
  o.stepped_by_ = 0;
}

void Schedule::step_if(bool applied) {
  if (!applied) return;
  const int64_t next = count() + 1;
  follow();
  apply_rates(next, /*keep_set=*/false);
  optimizer().stepped_by_ = id_;
}

std::optional<double> Schedule::initial_for(double, int64_t) const { return {}; }
std::optional<double> FactorSchedule::initial_for(double rate, int64_t count) const {
  const double initial = rate / factor(count);
  if (!std::isfinite(initial)) return {};
  return initial;
}

const Schedule::UserRate* Schedule::user_rate(size_t group, int64_t count) const {
  const auto at = user_rates_.find(group);
  if (at == user_rates_.end() || section(at->second.count) != section(count) || (at->second.while_holding && !holds(count)))
    return nullptr;
  return &at->second;
}

double Schedule::initial_lr(size_t group) const {
  if (const UserRate* const set = user_rate(group, count_); set && !set->while_holding) return set->value;
  const auto at = initial_.find(group);
  return at == initial_.end() ? optimizer().initial_lr(group) : at->second;
}

double Schedule::rate_of(size_t group, int64_t count) const {
  const UserRate* const set = user_rate(group, count);
  if (set) return set->while_holding ? held_rate(set->value, count) : rate(set->value, count);
  const auto at = initial_.find(group);
  return rate(at == initial_.end() ? optimizer().initial_lr(group) : at->second, count);
}

void Schedule::follow() {
  Optimizer& o = optimizer();
  if (o.sync_host_) o.sync_host_();  // another schedule's rates may be on the device
  o.adopt_options();
  const bool absolute = is_absolute();
  const uint64_t by = o.stepped_by_;
  if (absolute && by != 0 && by != id_)
    fail<ValueError>("schedule", describe(), " sets rates whatever the optimizer's other schedule makes of them",
                     Help{"step one of them only, or make a SequentialLR of both; MultiplicativeLR multiplies the rate before"});
  for (size_t g = 0; g < o.groups_.size(); ++g) {
    const bool set = o.written_[g];
    const double now = o.lr_[g], own = rate_of(g, count_);
    o.written_[g] = false;
    if (now == own || (!set && absolute)) continue;
    const bool before = user_rate(g, count_) != nullptr, holding = holds(count_);
    const std::optional<double> value = holding ? held_for(now, count_) : initial_for(now, count_);
    if (!value) {
      if (set) logging::warn_once(describe() + " replaces the learning rate that was set by hand: here it cannot continue from it");
      continue;
    }
    // Another schedule multiplied the rate by now / own.
    if (!set && own != 0) initial_[g] = (initial_.contains(g) ? initial_[g] : o.initial_lr(g)) * (now / own);
    if (set || before || holding)
      user_rates_[g] = {*value, count_, holding};
    else
      initial_[g] = *value;
    ++revision_;
  }
}

int64_t Schedule::count() const {
  if (sync_host_) sync_host_();
  return count_;
}

void Schedule::set_count(int64_t count) {
  check<ValueError>(count >= 0, "schedule", "the count of applied steps must be >= 0, got ", count);
  if (sync_host_) sync_host_();
  if (continues_ && count > 0 && covers(count)) initial_.clear();
  apply_rates(count, /*keep_set=*/false);
}

void Schedule::apply_rates(int64_t count, bool keep_set) {
  if (!covers(count)) fail<ValueError>("schedule", describe(), " has ended, it cannot be stepped ", count, " times");
  count_ = count;
  continues_ = continues_ && count == 0;
  Optimizer& o = optimizer();
  if (count > 0) o.rates_loaded_ = false;
  const std::optional<double> momentum = moves_momentum() ? this->momentum(count) : std::nullopt;
  for (size_t g = 0; g < o.groups_.size(); ++g) {
    if (!keep_set || !o.was_written(g)) o.schedule_lr(rate_of(g, count), g);
    if (momentum) o.set_momentum(*momentum, g);
  }
}

void Schedule::changed() {
  ++revision_;
  apply_rates(count(), /*keep_set=*/false);
  optimizer().stepped_by_ = id_;
}

double Schedule::lr(size_t group) const { return optimizer().lr(group); }

std::vector<double> Schedule::get_last_lr() const {
  std::vector<double> out;
  for (const ParamGroup& group : optimizer().param_groups()) out.push_back(*group.lr);
  return out;
}

std::map<std::string, double> Schedule::state_dict() const {
  std::map<std::string, double> out{{"count", double(count())}};
  for (size_t g = 0; g < optimizer().groups_.size(); ++g) {
    const std::string group = std::to_string(g);
    out[kInitial + group] = initial_.contains(g) ? initial_.at(g) : optimizer().initial_lr(g);
    if (const UserRate* const set = user_rate(g, count_)) {
      out[(set->while_holding ? kHeld : kByHand) + group] = set->value;
      out[kCount + group] = double(set->count);
    }
    out[(optimizer().was_written(g) ? kSet : kRate) + group] = optimizer().lr(g);
  }
  return out;
}

void Schedule::load_state_dict(const std::map<std::string, double>& state) {
  const auto at = state.find("count");
  check<ValueError>(at != state.end() && at->second >= 0 && at->second < 0x1p53, "schedule",
                    "a state must hold the count of applied steps");
  const auto stored = [&](const std::string& key, size_t g) -> std::optional<double> {
    const auto found = state.find(key + std::to_string(g));
    if (found == state.end()) return {};
    check<ValueError>(found->second >= 0 || key == kInitial || key == kByHand, "schedule", found->first,
                      " of a state must be >= 0, got ", found->second);
    return found->second;
  };
  const size_t groups = optimizer().groups_.size();
  for (size_t g = 0; g < groups; ++g) stored(kRate, g), stored(kSet, g), stored(kHeld, g), stored(kCount, g);
  initial_.clear(), user_rates_.clear();
  continues_ = false;
  for (size_t g = 0; g < groups; ++g) {
    if (const auto initial = stored(kInitial, g)) initial_[g] = *initial;
    const auto held = stored(kHeld, g), set = stored(kByHand, g), count = stored(kCount, g);
    if (held || set) user_rates_[g] = {held ? *held : *set, int64_t(count.value_or(at->second)), held.has_value()};
  }
  ++revision_;
  set_count(int64_t(at->second));
  for (size_t g = 0; g < groups; ++g) {
    if (const auto now = stored(kRate, g)) optimizer().schedule_lr(*now, g);
    if (const auto set = stored(kSet, g)) optimizer().set_lr(*set, g);
  }
}

}  // namespace halfstep
