// Learning-rate schedules: closed forms of the number of applied steps. A skipped step does not move them.
#pragma once

#include <memory>
#include <string>

#include "optim/optimizer.h"

namespace halfstep {

class Schedule {
 public:
  virtual ~Schedule() = default;
  // After each optimizer step: counts it when it was applied, and sets the learning rate for the next.
  void step(bool applied = true);
  int64_t count() const;                       // applied steps
  void set_count(int64_t count);               // resume: also sets the learning rate
  double lr(size_t group = 0) const;           // what the optimizer holds now
  // The factor of the initial learning rate after `count` applied steps.
  virtual double factor(int64_t count) const = 0;
  // The rate of a group that was built with `initial`, after `count` applied steps.
  virtual double rate(double initial, int64_t count) const { return initial * factor(count); }
  virtual std::string describe() const = 0;
  // `settle` brings the count up to date before it is read or set: see optim/device_rates.h. Null ends that.
  void use_device_count(std::function<void()> settle) { settle_ = std::move(settle); }

 protected:
  explicit Schedule(Optimizer& optimizer);     // `optimizer` must outlive it
  void start();                                // call at the end of a constructor: sets the first learning rate

 private:
  Optimizer& optimizer_;
  int64_t count_ = 0;
  std::function<void()> settle_;
};

// lr gamma^(count / step_size)
class StepLR : public Schedule {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);
  double factor(int64_t count) const override;
  std::string describe() const override;

 private:
  int64_t step_size_;
  double gamma_;
};

// Linear from lr/warmup to lr over `warmup_steps`, then half a cosine from lr down to eta_min at t_max (and eta_min after).
// eta_min is absolute, for every group; factor() is the first group's.
class CosineAnnealingLR : public Schedule {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min = 0, int64_t warmup_steps = 0);
  double factor(int64_t count) const override { return base_lr_ > 0 ? rate(base_lr_, count) / base_lr_ : 1; }
  std::string describe() const override;

  double rate(double initial, int64_t count) const override;

 private:
  int64_t t_max_, warmup_steps_;
  double eta_min_, base_lr_;
};

}  // namespace halfstep
