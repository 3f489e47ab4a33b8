// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace halfstep {
namespace {

constexpr double kRounding = 1e-9;  // relative difference of two equal rates

double worst(const std::string& mode) {
  return mode == "min" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

}  // namespace

HALFSTEP_OPTIONS(PlateauOptions, option("mode", &O::mode, "whether lower or higher values are better").one_of({"min", "max"}),
                 option("factor", &O::factor, "factor").above(0).under(1),
                 option("patience", &O::patience, "evaluations without improvement").at_least(0),
                 option("threshold", &O::threshold, "least improvement that counts").at_least(0).unseen(),
                 option("threshold_mode", &O::threshold_mode, "relative to the best value, or not").one_of({"rel", "abs"}).unseen(),
                 option("cooldown", &O::cooldown, "evaluations after a change that do not count").at_least(0).unseen(),
                 option("min_lr", &O::min_lr, "lowest rate").at_least(0).unseen(),
                 option("eps", &O::eps, "smaller changes are ignored").at_least(0).unseen())

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& o)
    : ListedSchedule(optimizer, o), best_(worst(o.mode)) {
  start();
}

double ReduceLROnPlateau::rate(double initial, int64_t) const {
  double rate = initial;
  for (int64_t i = 0; i < reductions_; ++i) {
    const double lower = std::max(rate * options_.factor, options_.min_lr);
    if (rate - lower <= options_.eps) break;
    rate = lower;
  }
  return rate;
}

std::optional<double> ReduceLROnPlateau::initial_for(double rate, int64_t count) const {
  // A rate at or below the minimum is not reduced.
  for (const double initial : {rate / std::pow(options_.factor, double(reductions_)), rate}) {
    if (std::abs(this->rate(initial, count) - rate) <= kRounding * rate) return initial;
  }
  return {};
}

// Compares metrics; NaN is never better.
bool ReduceLROnPlateau::is_better(double metric) const {
  const bool relative = options_.threshold_mode == "rel";
  if (options_.mode == "min") return metric < (relative ? best_ * (1 - options_.threshold) : best_ - options_.threshold);
  return metric > (relative ? best_ * (1 + options_.threshold) : best_ + options_.threshold);
}

void ReduceLROnPlateau::observe(double metric) {
  count();  // updates the count
  follow();
  if (is_better(metric)) {
    best_ = metric;
    bad_evaluations_ = 0;
  } else {
    ++bad_evaluations_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_evaluations_ = 0;
  }
  if (bad_evaluations_ <= options_.patience) return;
  bad_evaluations_ = 0;
  cooldown_left_ = options_.cooldown;
  ++reductions_;
  changed();
}

std::map<std::string, double> ReduceLROnPlateau::state_dict() const {
  std::map<std::string, double> out = Schedule::state_dict();
  if (std::isfinite(best_))
    out["best"] = best_;
  else if (best_ != worst(options_.mode))
    out["best_is_infinite"] = 1;
  out["bad"] = double(bad_evaluations_), out["cooling"] = double(cooldown_left_), out["reductions"] = double(reductions_);
  return out;
}

void ReduceLROnPlateau::load_state_dict(const std::map<std::string, double>& state) {
  const auto count = [&](const char* key) {
    const auto at = state.find(key);
    if (at == state.end()) return int64_t{0};
    check<ValueError>(at->second >= 0 && at->second < 0x1p53, "ReduceLROnPlateau", key, " of a state must be a count, got ",
                      at->second);
    return int64_t(at->second);
  };
  const int64_t bad = count("bad"), cooling = count("cooling"), reductions = count("reductions");
  best_ = state.contains("best")               ? state.at("best")
          : state.contains("best_is_infinite") ? -worst(options_.mode)
                                               : worst(options_.mode);
  bad_evaluations_ = bad, cooldown_left_ = cooling, reductions_ = reductions;
  Schedule::load_state_dict(state);
}

CompositeSchedule::CompositeSchedule(Optimizer& optimizer, const char* name, std::vector<SchedulePtr> parts)
    : Schedule(optimizer), name_(name), parts_(std::move(parts)) {
  check<ValueError>(!parts_.empty(), name, "needs at least one schedule");
  for (const SchedulePtr& part : parts_) {
    check<ValueError>(part != nullptr, name, "got a schedule that is null");
    check<ValueError>(&part->optimizer() == &optimizer, name, "all schedules must be of one optimizer, got ", part->describe(),
                      " of another");
  }
}

Schedule::FirstRate CompositeSchedule::first_rate(size_t group) const {
  const auto first =
      std::min_element(parts_.begin(), parts_.end(), [](const SchedulePtr& a, const SchedulePtr& b) { return a->id_ < b->id_; });
  return {(*first)->initial_lr(group), (*first)->continues_};
}

bool CompositeSchedule::is_absolute() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const SchedulePtr& part) { return part->is_absolute(); });
}

bool CompositeSchedule::covers(int64_t count) const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const std::optional<int64_t> own = count_of(i, count);
    if (own && !parts_[i]->covers(*own)) return false;
  }
  return true;
}

bool CompositeSchedule::holds(int64_t count) const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const std::optional<int64_t> own = count_of(i, count);
    if (own && parts_[i]->holds(*own)) return true;
  }
  return false;
}

std::optional<double> CompositeSchedule::held_for(double rate, int64_t count) const {
  std::optional<double> out = rate;
  for (size_t i = parts_.size(); out && i-- > 0;) {
    if (const std::optional<int64_t> own = count_of(i, count))
      out = parts_[i]->holds(*own) ? parts_[i]->held_for(*out, *own) : parts_[i]->initial_for(*out, *own);
  }
  return out;
}

double CompositeSchedule::held_rate(double held, int64_t count) const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (const std::optional<int64_t> own = count_of(i, count))
      held = parts_[i]->holds(*own) ? parts_[i]->held_rate(held, *own) : parts_[i]->rate(held, *own);
  }
  return held;
}

std::optional<double> CompositeSchedule::momentum(int64_t count) const {
  std::optional<double> out;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const std::optional<int64_t> own = count_of(i, count);
    const std::optional<double> part_momentum = parts_[i]->momentum(own.value_or(0));
    if (part_momentum && (own || !out))
      out = part_momentum;  // a schedule that is not running counts only if none before it has a momentum
  }
  return out;
}

void CompositeSchedule::observe(double metric) {
  count();  // updates the count
  follow();
  for (const SchedulePtr& part : parts_) part->observe(metric);
  changed();
}

std::map<std::string, double> CompositeSchedule::state_dict() const {
  std::map<std::string, double> out = Schedule::state_dict();
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (const auto& [key, value] : parts_[i]->state_dict()) {
      const bool own = key != "count" && key.find("lr.") == std::string::npos;  // counts and rates belong to the whole
      if (own) out[std::to_string(i) + "." + key] = value;
    }
  }
  return out;
}

void CompositeSchedule::load_state_dict(const std::map<std::string, double>& state) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const std::string prefix = std::to_string(i) + ".";
    std::map<std::string, double> own{{"count", 0}};
    for (const auto& [key, value] : state) {
      if (key.starts_with(prefix)) own[key.substr(prefix.size())] = value;
    }
    parts_[i]->load_state_dict(own);
  }
  Schedule::load_state_dict(state);
}

std::string CompositeSchedule::describe() const {
  std::string all;
  for (const SchedulePtr& part : parts_) all += (all.empty() ? "" : ", ") + part->describe();
  return std::string(name_) + "(" + all + ")";
}

ChainedScheduler::ChainedScheduler(Optimizer& optimizer, std::vector<SchedulePtr> schedules)
    : CompositeSchedule(optimizer, "ChainedScheduler", std::move(schedules)) {
  for (const SchedulePtr& part : parts()) {
    check<ValueError>(parts().size() == 1 || !part->is_absolute(), "ChainedScheduler", part->describe(),
                      " sets rates whatever the other schedules make of them",
                      Help{"use it alone, or in a SequentialLR; MultiplicativeLR multiplies the rate before"});
  }
  start();
}
std::optional<double> ChainedScheduler::initial_for(double rate, int64_t count) const {
  std::optional<double> out = rate;
  for (size_t i = parts().size(); out && i-- > 0;) out = parts()[i]->initial_for(*out, count);
  return out;
}
double ChainedScheduler::rate(double initial, int64_t count) const {
  double rate = initial;
  for (const SchedulePtr& part : parts()) rate = part->rate(rate, count);
  return rate;
}

int64_t ChainedScheduler::section(int64_t count) const {
  int64_t out = 0;
  for (const SchedulePtr& part : parts()) out += part->section(count);
  return out;
}

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<SchedulePtr> schedules, std::vector<int64_t> milestones)
    : CompositeSchedule(optimizer, "SequentialLR", std::move(schedules)), milestones_(std::move(milestones)) {
  check<ValueError>(milestones_.size() + 1 == parts().size(), "SequentialLR", "needs one milestone less than schedules, got ",
                    milestones_.size(), " for ", parts().size());
  for (size_t i = 0; i < milestones_.size(); ++i) {
    check<ValueError>(milestones_[i] > (i ? milestones_[i - 1] : 0), "SequentialLR", "milestones must be >= 1 and ascend, got ",
                      milestones_[i]);
  }
  start();
}
std::optional<int64_t> SequentialLR::count_of(size_t part, int64_t count) const {
  const int64_t begin = part ? milestones_[part - 1] : 0;
  if (count < begin || (part < milestones_.size() && count >= milestones_[part])) return {};
  return count - begin;
}
size_t SequentialLR::part_at(int64_t count) const {
  size_t part = 0;
  while (!count_of(part, count)) ++part;
  return part;
}
double SequentialLR::rate(double initial, int64_t count) const {
  const size_t part = part_at(count);
  if (const auto factor = part > 0 ? parts()[part]->entry_factor() : std::nullopt)
    initial = *factor * rate(initial, milestones_[part - 1] - 1);
  return parts()[part]->rate(initial, *count_of(part, count));
}

std::optional<double> SequentialLR::initial_for(double rate, int64_t count) const {
  const size_t part = part_at(count);
  const std::optional<double> part_initial = parts()[part]->initial_for(rate, *count_of(part, count));
  const std::optional<double> factor = part > 0 ? parts()[part]->entry_factor() : std::nullopt;
  if (!part_initial || !factor) return part_initial;
  return *factor > 0 ? initial_for(*part_initial / *factor, milestones_[part - 1] - 1) : std::nullopt;
}

int64_t SequentialLR::section(int64_t count) const {
  const size_t part = part_at(count);
  const int64_t begin = part > 0 ? milestones_[part - 1] : 0;
  const bool continues_rate = part > 0 && parts()[part]->entry_factor();
  return (continues_rate ? section(begin - 1) : begin) + parts()[part]->section(count - begin);
}

WarmupLR::WarmupLR(Optimizer& optimizer, SchedulePtr schedule, int64_t steps)
    : CompositeSchedule(optimizer, "WarmupLR", {std::move(schedule)}), steps_(steps) {
  check<ValueError>(steps >= 1, "WarmupLR", "steps must be >= 1, got ", steps);
  start();
}
double WarmupLR::rate(double initial, int64_t count) const {
  const double then = parts()[0]->rate(initial, std::max<int64_t>(count - steps_, 0));
  return count < steps_ ? then * double(count + 1) / double(steps_) : then;
}

std::optional<double> WarmupLR::initial_for(double rate, int64_t count) const {
  if (count >= steps_) return parts()[0]->initial_for(rate, count - steps_);
  return parts()[0]->initial_for(rate * double(steps_) / double(count + 1), 0);
}

Epochs::Epochs(Optimizer& optimizer, SchedulePtr schedule, int64_t steps)
    : CompositeSchedule(optimizer, "Epochs", {std::move(schedule)}), steps_(steps) {
  check<ValueError>(steps >= 1, "Epochs", "steps must be >= 1, got ", steps);
  start();
}

}  // namespace halfstep
