// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: closed forms of the number of applied steps. Skipped steps do not count. Names, arguments, formulas and
// values are PyTorch's where it has the schedule (tests/optim/schedule_test.cpp).
//
//   CosineAnnealingLR schedule(opt, 1000);           // or (opt, {.T_max = 1000}), as Python has it
//   for (...) { ...; schedule.step(outcome.applied()); }
//
// A rate that the user sets (Optimizer::param_groups, set_lr) is used in the next step. Later rates continue from it, as in
// PyTorch: at half the rate, all later rates are halved; a rate that has decayed to 0 for good keeps the value set. LambdaLR,
// CosineAnnealingWarmRestarts, OneCycleLR and CyclicLR, which are closed forms in PyTorch too, ignore it, and warn.
//
// Several schedules of one optimizer, each of them stepped, multiply, as in PyTorch: each continues from the rate that the others
// set. Those four cannot, and throw ValueError. Step a schedule of epochs once an epoch, or wrap it in Epochs(steps).
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/arguments.h"
#include "optim/schedule_base.h"

namespace halfstep {

// Computes lr gamma^floor(count / step_size).
struct StepLRArguments {
  ByName by_name = ByName();
  Required<int64_t> step_size;
  double gamma = 0.1;
};
class StepLR : public FactorSchedule {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);
  StepLR(Optimizer& optimizer, const StepLRArguments& a) : StepLR(optimizer, *a.step_size, a.gamma) {}
  double factor(int64_t count) const override;
  std::string describe() const override;

 private:
  int64_t step_size_;
  double gamma_;
};

// {30, 80}, or a std::vector. Not a vector itself, as GCC would take {.milestones = ...} for its elements.
class Milestones {
 public:
  template <std::integral... T>
  Milestones(T... each) : values_{int64_t(each)...} {}
  Milestones(std::vector<int64_t> each) : values_(std::move(each)) {}
  const std::vector<int64_t>& values() const { return values_; }

 private:
  std::vector<int64_t> values_;
};
// Computes lr gamma^(number of milestones at or below count).
struct MultiStepLRArguments {
  ByName by_name = ByName();
  Required<std::vector<int64_t>> milestones;
  double gamma = 0.1;
};
class MultiStepLR : public FactorSchedule {
 public:
  MultiStepLR(Optimizer& optimizer, const Milestones& milestones, double gamma = 0.1);
  MultiStepLR(Optimizer& optimizer, const MultiStepLRArguments& a) : MultiStepLR(optimizer, *a.milestones, a.gamma) {}
  double factor(int64_t count) const override;
  std::string describe() const override;

 private:
  std::vector<int64_t> milestones_;  // ascending
  double gamma_;
};

// Computes lr gamma^count.
struct ExponentialLRArguments {
  ByName by_name = ByName();
  Required<double> gamma;
};
class ExponentialLR : public FactorSchedule {
 public:
  ExponentialLR(Optimizer& optimizer, double gamma);
  ExponentialLR(Optimizer& optimizer, const ExponentialLRArguments& a) : ExponentialLR(optimizer, *a.gamma) {}
  double factor(int64_t count) const override { return std::pow(gamma_, double(count)); }
  std::string describe() const override;

 private:
  double gamma_;
};

// Computes lr (1 - min(count, total_iters) / total_iters)^power.
struct PolynomialLRArguments {
  ByName by_name = ByName();
  int64_t total_iters = 5;
  double power = 1;
};
class PolynomialLR : public FactorSchedule {
 public:
  explicit PolynomialLR(Optimizer& optimizer, int64_t total_iters = 5, double power = 1);
  PolynomialLR(Optimizer& optimizer, const PolynomialLRArguments& a) : PolynomialLR(optimizer, a.total_iters, a.power) {}
  double factor(int64_t count) const override;
  std::string describe() const override;

 private:
  int64_t total_iters_;
  double power_;
};

// Interpolates linearly from lr start_factor to lr end_factor in total_iters steps.
struct LinearLRArguments {
  ByName by_name = ByName();
  double start_factor = 1.0 / 3, end_factor = 1;
  int64_t total_iters = 5;
};
class LinearLR : public FactorSchedule {
 public:
  explicit LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1, int64_t total_iters = 5);
  LinearLR(Optimizer& optimizer, const LinearLRArguments& a) : LinearLR(optimizer, a.start_factor, a.end_factor, a.total_iters) {}
  double factor(int64_t count) const override;
  std::string describe() const override;

 private:
  double start_, end_;
  int64_t total_iters_;
};

// Computes lr factor until total_iters, then lr.
struct ConstantLRArguments {
  ByName by_name = ByName();
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
};
class ConstantLR : public FactorSchedule {
 public:
  explicit ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, int64_t total_iters = 5);
  ConstantLR(Optimizer& optimizer, const ConstantLRArguments& a) : ConstantLR(optimizer, a.factor, a.total_iters) {}
  double factor(int64_t count) const override { return count < total_iters_ ? factor_ : 1; }
  std::string describe() const override;

 private:
  double factor_;
  int64_t total_iters_;
};

// Computes lr function(count).
struct LambdaLRArguments {
  ByName by_name = ByName();
  Required<std::function<double(int64_t)>> lr_lambda;
};
class LambdaLR : public FactorSchedule {
 public:
  LambdaLR(Optimizer& optimizer, const LambdaLRArguments& a);
  template <std::convertible_to<std::function<double(int64_t)>> F>
  LambdaLR(Optimizer& optimizer, F function) : LambdaLR(optimizer, LambdaLRArguments{.lr_lambda = std::move(function)}) {}
  double factor(int64_t count) const override { return function_(count); }
  std::optional<double> initial_for(double, int64_t) const override { return {}; }
  bool holds(int64_t) const override { return false; }
  bool is_absolute() const override { return true; }
  std::string describe() const override { return "LambdaLR"; }

 private:
  std::function<double(int64_t)> function_;
};

// Multiplies the rate before by function(count), from count 1 on: lr function(1) ... function(count).
struct MultiplicativeLRArguments {
  ByName by_name = ByName();
  Required<std::function<double(int64_t)>> lr_lambda;
};
class MultiplicativeLR : public FactorSchedule {
 public:
  MultiplicativeLR(Optimizer& optimizer, const MultiplicativeLRArguments& a);
  template <std::convertible_to<std::function<double(int64_t)>> F>
  MultiplicativeLR(Optimizer& optimizer, F function)
      : MultiplicativeLR(optimizer, MultiplicativeLRArguments{.lr_lambda = std::move(function)}) {}
  double factor(int64_t count) const override;
  std::optional<double> entry_factor() const override { return function_(0); }
  // After a function(count) of 0, a rate that the user sets is multiplied by the next ones.
  std::optional<double> held_for(double rate, int64_t count) const override { return rate / at(count).product; }
  double held_rate(double held, int64_t count) const override { return held * at(count).product; }
  int64_t section(int64_t count) const override { return at(count).zeros; }
  std::string describe() const override { return "MultiplicativeLR"; }

 private:
  struct Product {
    double product;  // of the functions since the last one that made it 0
    int64_t zeros;   // how often one did
  };
  const Product& at(int64_t count) const;
  std::function<double(int64_t)> function_;
  mutable std::vector<Product> products_{{1, 0}};  // by count
};

// Computes lr d_model^-0.5 min(t^-0.5, t warmup_steps^-1.5) with t = count + 1 ("Attention is all you need"). lr is usually 1.
class NoamLR : public FactorSchedule {
 public:
  NoamLR(Optimizer& optimizer, int64_t d_model, int64_t warmup_steps);
  double factor(int64_t count) const override;
  std::string describe() const override;

 private:
  int64_t d_model_, warmup_steps_;
};

// Grows linearly from lr / warmup_steps to lr, then decays as lr sqrt(warmup_steps / t) with t = count + 1 (fairseq's
// inverse_sqrt).
class InverseSqrtLR : public FactorSchedule {
 public:
  InverseSqrtLR(Optimizer& optimizer, int64_t warmup_steps);
  double factor(int64_t count) const override;
  std::string describe() const override;

 private:
  int64_t warmup_steps_;
};

// Warm-up, stable, decay: grows linearly to lr, keeps it for stable_steps, and decays to lr min_factor in decay_steps: linearly,
// by half a cosine, or as 1 - sqrt (Hägele et al. 2024).
struct WSDOptions {
  int64_t warmup_steps = 0, stable_steps = 0, decay_steps = 1;
  double min_factor = 0;
  std::string decay = "linear";  // "linear", "cosine", "1-sqrt"
};
class WSDLR : public FactorSchedule {
 public:
  WSDLR(Optimizer& optimizer, const WSDOptions& options);
  double factor(int64_t count) const override;
  std::string describe() const override;

 private:
  WSDOptions options_;
};

// Grows linearly from lr/warmup to lr over `warmup_steps`, then follows half a cosine from lr down to eta_min at t_max, and stays
// there. eta_min is absolute, for all groups.
struct CosineAnnealingLRArguments {
  ByName by_name = ByName();
  Required<int64_t> T_max;
  double eta_min = 0;
  int64_t warmup_steps = 0;
};
class CosineAnnealingLR : public Schedule {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min = 0, int64_t warmup_steps = 0);
  CosineAnnealingLR(Optimizer& optimizer, const CosineAnnealingLRArguments& a)
      : CosineAnnealingLR(optimizer, *a.T_max, a.eta_min, a.warmup_steps) {}
  std::string describe() const override;
  double rate(double initial, int64_t count) const override;
  std::optional<double> initial_for(double rate, int64_t count) const override;
  bool holds(int64_t count) const override { return count >= t_max_; }

 private:
  int64_t t_max_, warmup_steps_;
  double eta_min_;
};

// Repeats half a cosine from lr to eta_min: the first takes t_0 steps, each other t_mult times as many as the one before.
struct CosineAnnealingWarmRestartsArguments {
  ByName by_name = ByName();
  Required<int64_t> T_0;
  int64_t T_mult = 1;
  double eta_min = 0;
};
class CosineAnnealingWarmRestarts : public Schedule {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t t_0, int64_t t_mult = 1, double eta_min = 0);
  CosineAnnealingWarmRestarts(Optimizer& optimizer, const CosineAnnealingWarmRestartsArguments& a)
      : CosineAnnealingWarmRestarts(optimizer, *a.T_0, a.T_mult, a.eta_min) {}
  std::string describe() const override;
  double rate(double initial, int64_t count) const override;
  bool is_absolute() const override { return true; }

 private:
  int64_t t_0_, t_mult_;
  double eta_min_;
};

// Raises the rate to its maximum and lowers it to almost nothing; the momentum moves the other way (Smith & Topin 2019). The first
// group's maximum is max_lr, or its own rate if that is 0; the other groups' are in proportion to their rates. Give total_steps,
// or epochs and steps_per_epoch. As in PyTorch, step throws ValueError beyond the last one.
struct OneCycleOptions {
  double max_lr = 0;
  int64_t total_steps = 0;
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";  // "cos", "linear"
  bool cycle_momentum = true;
  double base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25, final_div_factor = 1e4;
  bool three_phase = false;
  int64_t epochs = 0, steps_per_epoch = 0;
};
class OneCycleLR : public Schedule {
 public:
  OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options);
  OneCycleLR(Optimizer& optimizer, double max_lr, int64_t total_steps);
  double rate(double initial, int64_t count) const override;
  bool is_absolute() const override { return true; }
  bool covers(int64_t count) const override { return count <= options_.total_steps; }
  std::optional<double> momentum(int64_t count) const override;
  std::string describe() const override;

 private:
  double at(int64_t count, const double (&turns)[4]) const;
  double scale() const;  // the ratio of a group's maximum to its rate
  OneCycleOptions options_;
};

// Moves the rate between base_lr and max_lr and back; the momentum moves the other way (Smith 2017). Rates are absolute, for all
// groups.
struct CyclicOptions {
  double base_lr = 0, max_lr = 0;
  int64_t step_size_up = 2000, step_size_down = 0;  // down 0: as up
  std::string mode = "triangular";                  // "triangular", "triangular2", "exp_range"
  double gamma = 1;
  bool cycle_momentum = true;
  double base_momentum = 0.8, max_momentum = 0.9;
};
class CyclicLR : public Schedule {
 public:
  CyclicLR(Optimizer& optimizer, const CyclicOptions& options);
  double rate(double initial, int64_t count) const override;
  bool is_absolute() const override { return true; }
  std::optional<double> momentum(int64_t count) const override;
  std::string describe() const override;

 private:
  double height(int64_t count) const;  // 0 at the base, 1 at the top
  CyclicOptions options_;
};

}  // namespace halfstep
