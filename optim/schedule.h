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
// set. Those four cannot, and throw ValueError. A schedule that is made after another was stepped begins at the rate that was
// reached; those four and SequentialLR begin at the initial rate. Step a schedule of epochs once an epoch, or wrap it in
// Epochs(steps).
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/options.h"
#include "optim/schedule_base.h"

namespace halfstep {

// Returns ", step_size=3", the name in lower case; an empty string for an option that is not shown.
std::string shown_option(const OptionFacts& option, const OptionValue& value, const OptionValue& usual);

// A schedule of class Base with options O: their check and describe().
template <ClassName type, class O, class Base = FactorSchedule>
class ListedSchedule : public Base {
 public:
  using Options = O;
  static constexpr const char* kName = type.text;
  std::string describe() const override { return text_of(options_); }

 protected:
  ListedSchedule(Optimizer& optimizer, const O& options) : Base(optimizer), options_(options) { check_options(kName, options_); }
  static O defaults() { return defaults_of<O>(); }
  static std::string text_of(const O& options) {
    std::string out;
    for (const Option<O>& o : O::list()) out += shown_option(o, o.get(options), o.get(defaults()));
    return joined(kName, '(', out.substr(out.empty() ? 0 : 2), ')');
  }
  O options_;
};

// Computes lr gamma^floor(count / step_size).
struct StepLROptions {
  ByName by_name = ByName();
  Required<int64_t> step_size;
  double gamma = 0.1;
  static const OptionList<StepLROptions>& list();
};
class StepLR : public ListedSchedule<"StepLR", StepLROptions> {
 public:
  StepLR(Optimizer& optimizer, const Options& options) : ListedSchedule(optimizer, options) { start(); }
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = defaults().gamma)
      : StepLR(optimizer, Options{.step_size = step_size, .gamma = gamma}) {}
  double factor(int64_t count) const override;
};

// An argument: {30, 80}, or a std::vector. Not a vector itself, because GCC would take {.milestones = ...} for its elements.
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
struct MultiStepLROptions {
  ByName by_name = ByName();
  Required<std::vector<int64_t>> milestones;
  double gamma = 0.1;
  static const OptionList<MultiStepLROptions>& list();
};
class MultiStepLR : public ListedSchedule<"MultiStepLR", MultiStepLROptions> {
 public:
  MultiStepLR(Optimizer& optimizer, const Options& options);
  MultiStepLR(Optimizer& optimizer, const Milestones& milestones, double gamma = defaults().gamma)
      : MultiStepLR(optimizer, Options{.milestones = milestones.values(), .gamma = gamma}) {}
  double factor(int64_t count) const override;
};

// Computes lr gamma^count.
struct ExponentialLROptions {
  ByName by_name = ByName();
  Required<double> gamma;
  static const OptionList<ExponentialLROptions>& list();
};
class ExponentialLR : public ListedSchedule<"ExponentialLR", ExponentialLROptions> {
 public:
  ExponentialLR(Optimizer& optimizer, const Options& options) : ListedSchedule(optimizer, options) { start(); }
  ExponentialLR(Optimizer& optimizer, double gamma) : ExponentialLR(optimizer, Options{.gamma = gamma}) {}
  double factor(int64_t count) const override { return std::pow(*options_.gamma, double(count)); }
};

// Computes lr (1 - min(count, total_iters) / total_iters)^power.
struct PolynomialLROptions {
  ByName by_name = ByName();
  int64_t total_iters = 5;
  double power = 1;
  static const OptionList<PolynomialLROptions>& list();
};
class PolynomialLR : public ListedSchedule<"PolynomialLR", PolynomialLROptions> {
 public:
  explicit PolynomialLR(Optimizer& optimizer, const Options& options = {}) : ListedSchedule(optimizer, options) { start(); }
  PolynomialLR(Optimizer& optimizer, int64_t total_iters, double power = defaults().power)
      : PolynomialLR(optimizer, Options{.total_iters = total_iters, .power = power}) {}
  double factor(int64_t count) const override;
};

// Interpolates linearly from lr start_factor to lr end_factor in total_iters steps.
struct LinearLROptions {
  ByName by_name = ByName();
  double start_factor = 1.0 / 3, end_factor = 1;
  int64_t total_iters = 5;
  static const OptionList<LinearLROptions>& list();
};
class LinearLR : public ListedSchedule<"LinearLR", LinearLROptions> {
 public:
  explicit LinearLR(Optimizer& optimizer, const Options& options = {}) : ListedSchedule(optimizer, options) { start(); }
  LinearLR(Optimizer& optimizer, double start_factor, double end_factor = defaults().end_factor,
           int64_t total_iters = defaults().total_iters)
      : LinearLR(optimizer, Options{.start_factor = start_factor, .end_factor = end_factor, .total_iters = total_iters}) {}
  double factor(int64_t count) const override;
};

// Computes lr factor until total_iters, then lr.
struct ConstantLROptions {
  ByName by_name = ByName();
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
  static const OptionList<ConstantLROptions>& list();
};
class ConstantLR : public ListedSchedule<"ConstantLR", ConstantLROptions> {
 public:
  explicit ConstantLR(Optimizer& optimizer, const Options& options = {}) : ListedSchedule(optimizer, options) { start(); }
  ConstantLR(Optimizer& optimizer, double factor, int64_t total_iters = defaults().total_iters)
      : ConstantLR(optimizer, Options{.factor = factor, .total_iters = total_iters}) {}
  double factor(int64_t count) const override { return count < options_.total_iters ? options_.factor : 1; }
};

// Computes lr function(count).
struct LambdaLROptions {
  ByName by_name = ByName();
  Required<std::function<double(int64_t)>> lr_lambda;
};
class LambdaLR : public FactorSchedule {
 public:
  LambdaLR(Optimizer& optimizer, const LambdaLROptions& options);
  template <std::convertible_to<std::function<double(int64_t)>> F>
  LambdaLR(Optimizer& optimizer, F function) : LambdaLR(optimizer, LambdaLROptions{.lr_lambda = std::move(function)}) {}
  double factor(int64_t count) const override { return function_(count); }
  std::optional<double> initial_for(double, int64_t) const override { return {}; }
  bool holds(int64_t) const override { return false; }
  bool is_absolute() const override { return true; }
  std::string describe() const override { return "LambdaLR"; }

 private:
  std::function<double(int64_t)> function_;
};

// Multiplies the rate before by function(count), from count 1 on: lr function(1) ... function(count).
struct MultiplicativeLROptions {
  ByName by_name = ByName();
  Required<std::function<double(int64_t)>> lr_lambda;
};
class MultiplicativeLR : public FactorSchedule {
 public:
  MultiplicativeLR(Optimizer& optimizer, const MultiplicativeLROptions& options);
  template <std::convertible_to<std::function<double(int64_t)>> F>
  MultiplicativeLR(Optimizer& optimizer, F function)
      : MultiplicativeLR(optimizer, MultiplicativeLROptions{.lr_lambda = std::move(function)}) {}
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
struct NoamLROptions {
  ByName by_name = ByName();
  Required<int64_t> d_model, warmup_steps;
  static const OptionList<NoamLROptions>& list();
};
class NoamLR : public ListedSchedule<"NoamLR", NoamLROptions> {
 public:
  NoamLR(Optimizer& optimizer, const Options& options) : ListedSchedule(optimizer, options) { start(); }
  NoamLR(Optimizer& optimizer, int64_t d_model, int64_t warmup_steps)
      : NoamLR(optimizer, Options{.d_model = d_model, .warmup_steps = warmup_steps}) {}
  double factor(int64_t count) const override;
};

// Grows linearly from lr / warmup_steps to lr, then decays as lr sqrt(warmup_steps / t) with t = count + 1 (fairseq's
// inverse_sqrt).
struct InverseSqrtLROptions {
  ByName by_name = ByName();
  Required<int64_t> warmup_steps;
  static const OptionList<InverseSqrtLROptions>& list();
};
class InverseSqrtLR : public ListedSchedule<"InverseSqrtLR", InverseSqrtLROptions> {
 public:
  InverseSqrtLR(Optimizer& optimizer, const Options& options) : ListedSchedule(optimizer, options) { start(); }
  InverseSqrtLR(Optimizer& optimizer, int64_t warmup_steps) : InverseSqrtLR(optimizer, Options{.warmup_steps = warmup_steps}) {}
  double factor(int64_t count) const override;
};

// Warm-up, stable, decay: grows linearly to lr, keeps it for stable_steps, and decays to lr min_factor in decay_steps: linearly,
// by half a cosine, or as 1 - sqrt (Hägele et al. 2024).
struct WSDOptions {
  int64_t warmup_steps = 0, stable_steps = 0, decay_steps = 1;
  double min_factor = 0;
  std::string decay = "linear";
  static const OptionList<WSDOptions>& list();
};
class WSDLR : public ListedSchedule<"WSDLR", WSDOptions> {
 public:
  WSDLR(Optimizer& optimizer, const Options& options) : ListedSchedule(optimizer, options) { start(); }
  double factor(int64_t count) const override;
};

// Grows linearly from lr / warmup_steps to lr over `warmup_steps`, then follows half a cosine from lr down to eta_min at T_max, and
// stays there. eta_min is absolute, for all groups.
struct CosineAnnealingLROptions {
  ByName by_name = ByName();
  Required<int64_t> T_max;
  double eta_min = 0;
  int64_t warmup_steps = 0;
  static const OptionList<CosineAnnealingLROptions>& list();
  void(check)(std::string_view name) const;
};
class CosineAnnealingLR : public ListedSchedule<"CosineAnnealingLR", CosineAnnealingLROptions, Schedule> {
 public:
  CosineAnnealingLR(Optimizer& optimizer, const Options& options) : ListedSchedule(optimizer, options) { start(); }
  CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min = defaults().eta_min,
                    int64_t warmup_steps = defaults().warmup_steps)
      : CosineAnnealingLR(optimizer, Options{.T_max = T_max, .eta_min = eta_min, .warmup_steps = warmup_steps}) {}
  double rate(double initial, int64_t count) const override;
  std::optional<double> initial_for(double rate, int64_t count) const override;
  bool holds(int64_t count) const override { return count >= *options_.T_max; }

 private:
  double share_passed(int64_t count) const;  // 0 after the warm-up, 1 from T_max on
};

// Repeats half a cosine from lr to eta_min: the first takes T_0 steps, each other T_mult times as many as the one before.
struct CosineAnnealingWarmRestartsOptions {
  ByName by_name = ByName();
  Required<int64_t> T_0;
  int64_t T_mult = 1;
  double eta_min = 0;
  static const OptionList<CosineAnnealingWarmRestartsOptions>& list();
};
class CosineAnnealingWarmRestarts
    : public ListedSchedule<"CosineAnnealingWarmRestarts", CosineAnnealingWarmRestartsOptions, Schedule> {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, const Options& options) : ListedSchedule(optimizer, options) { start(); }
  CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t T_0, int64_t T_mult = defaults().T_mult,
                              double eta_min = defaults().eta_min)
      : CosineAnnealingWarmRestarts(optimizer, Options{.T_0 = T_0, .T_mult = T_mult, .eta_min = eta_min}) {}
  double rate(double initial, int64_t count) const override;
  bool is_absolute() const override { return true; }
};

// Raises the rate from maximum / div_factor to its maximum and lowers it to maximum / (div_factor final_div_factor); the momentum
// moves the other way (Smith & Topin 2019). As in PyTorch the maximum of all groups is max_lr, whatever their rates are; if that is
// 0, each group's is its own rate, which is PyTorch's list of max_lr. Give total_steps, or epochs and steps_per_epoch. As in
// PyTorch, step throws ValueError beyond the last one.
struct OneCycleOptions {
  double max_lr = 0;
  int64_t total_steps = 0;
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";
  bool cycle_momentum = true;
  double base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25, final_div_factor = 1e4;
  bool three_phase = false;
  int64_t epochs = 0, steps_per_epoch = 0;
  static const OptionList<OneCycleOptions>& list();
  void(check)(std::string_view name) const;
};
class OneCycleLR : public ListedSchedule<"OneCycleLR", OneCycleOptions, Schedule> {
 public:
  OneCycleLR(Optimizer& optimizer, const Options& options);
  OneCycleLR(Optimizer& optimizer, double max_lr, int64_t total_steps)
      : OneCycleLR(optimizer, Options{.max_lr = max_lr, .total_steps = total_steps}) {}
  double rate(double initial, int64_t count) const override;
  bool is_absolute() const override { return true; }
  bool covers(int64_t count) const override { return count <= options_.total_steps; }
  std::optional<double> momentum(int64_t count) const override;
  std::string describe() const override;

 private:
  double interpolate(int64_t count, const double (&turns)[4]) const;
};

// Moves the rate between base_lr and max_lr and back; the momentum moves the other way (Smith 2017). Rates are absolute, for all
// groups.
struct CyclicOptions {
  double base_lr = 0, max_lr = 0;
  int64_t step_size_up = 2000, step_size_down = 0;  // down 0: as up
  std::string mode = "triangular";
  double gamma = 1;
  bool cycle_momentum = true;
  double base_momentum = 0.8, max_momentum = 0.9;
  static const OptionList<CyclicOptions>& list();
  void(check)(std::string_view name) const;
};
class CyclicLR : public ListedSchedule<"CyclicLR", CyclicOptions, Schedule> {
 public:
  CyclicLR(Optimizer& optimizer, const Options& options);
  double rate(double initial, int64_t count) const override;
  bool is_absolute() const override { return true; }
  std::optional<double> momentum(int64_t count) const override;

 private:
  double height(int64_t count) const;  // 0 at the base, 1 at the top
};

}  // namespace halfstep
