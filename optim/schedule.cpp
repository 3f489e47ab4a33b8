#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <sstream>

namespace halfstep {

Schedule::Schedule(Optimizer& optimizer) : optimizer_(optimizer) {}

void Schedule::start() { set_count(0); }

void Schedule::step(bool applied) {
  if (applied) set_count(count() + 1);
}

int64_t Schedule::count() const {
  if (settle_) settle_();
  return count_;
}

void Schedule::set_count(int64_t count) {
  check<ValueError>(count >= 0, "schedule", "the count of applied steps must be >= 0, got ", count);
  if (settle_) settle_();
  count_ = count;
  for (size_t g = 0; g < optimizer_.groups().size(); ++g) optimizer_.set_lr(rate(optimizer_.initial_lr(g), count), g);
}

double Schedule::lr(size_t group) const { return optimizer_.lr(group); }

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma) : Schedule(optimizer), step_size_(step_size), gamma_(gamma) {
  check<ValueError>(step_size > 0, "StepLR", "step_size must be >= 1, got ", step_size);
  check<ValueError>(gamma >= 0, "StepLR", "gamma must be >= 0, got ", gamma);
  start();
}

double StepLR::factor(int64_t count) const { return std::pow(gamma_, double(count / step_size_)); }

std::string StepLR::describe() const {
  std::ostringstream out;
  out << "StepLR(step_size=" << step_size_ << ", gamma=" << gamma_ << ')';
  return out.str();
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min, int64_t warmup_steps)
    : Schedule(optimizer), t_max_(t_max), warmup_steps_(warmup_steps), eta_min_(eta_min), base_lr_(optimizer.initial_lr(0)) {
  check<ValueError>(t_max > 0, "CosineAnnealingLR", "t_max must be >= 1, got ", t_max);
  check<ValueError>(eta_min >= 0, "CosineAnnealingLR", "eta_min must be >= 0, got ", eta_min);
  check<ValueError>(warmup_steps >= 0 && warmup_steps < t_max, "CosineAnnealingLR", "warmup_steps must be in [0, t_max), got ",
                    warmup_steps, " with t_max ", t_max);
  start();
}

double CosineAnnealingLR::rate(double initial, int64_t count) const {
  if (count < warmup_steps_) return initial * double(count + 1) / double(warmup_steps_);
  const double progress = double(std::min(count, t_max_) - warmup_steps_) / double(t_max_ - warmup_steps_);
  return eta_min_ + (initial - eta_min_) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

std::string CosineAnnealingLR::describe() const {
  std::ostringstream out;
  out << "CosineAnnealingLR(t_max=" << t_max_ << ", eta_min=" << eta_min_;
  if (warmup_steps_ > 0) out << ", warmup_steps=" << warmup_steps_;
  out << ')';
  return out.str();
}

}  // namespace halfstep
