// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace halfstep {
namespace {

template <class O>
Option<O> gamma_of(const char* doc = "factor") {
  return option("gamma", &O::gamma, doc).at_least(0);
}
template <class O>
Option<O> total_iters_of(const char* doc) {
  return option("total_iters", &O::total_iters, doc).at_least(1);
}
template <class O>
Option<O> eta_min_of(const char* doc) {
  return option("eta_min", &O::eta_min, doc).at_least(0);
}
template <class O>
Option<O> warmup_steps_of(const char* doc) {
  return option("warmup_steps", &O::warmup_steps, doc).at_least(1);
}
template <class O>
Option<O> cycle_momentum_of() {
  return option("cycle_momentum", &O::cycle_momentum, "move momentum, or the first beta, as well").unseen();
}
template <class O>
Option<O> momentum_of(const char* name, double O::*member, const char* doc) {
  return option(name, member, doc).at_least(0).under(1).unseen();
}

void check_momentum(const char* name, bool cycle_momentum, const Optimizer& optimizer) {
  check<ValueError>(!cycle_momentum || optimizer.has_momentum(), name,
                    "cycle_momentum needs an optimizer with a momentum or betas, got ", optimizer.describe(),
                    Help{"set cycle_momentum to false"});
}

// Follows half a cosine from `from` to `to` as x goes from 0 to 1.
double cosine(double from, double to, double x) { return to + (from - to) * (1 + std::cos(std::numbers::pi * x)) / 2; }

}  // namespace

std::string shown_option(const OptionFacts& o, const OptionValue& value, const OptionValue& usual) {
  if (o.shown == OptionShown::never || (o.shown == OptionShown::if_changed && value == usual)) return {};
  std::string out = ", ";
  out += o.name;
  out += '=';
  if (const auto* const text = std::get_if<std::string>(&value)) return out + *text;
  if (const auto* const whole = std::get_if<int64_t>(&value)) return out + joined(*whole);
  if (const auto* const number = std::get_if<double>(&value)) return out + joined(*number);
  out += '[';
  for (const double x : std::get<std::vector<double>>(value)) out += joined(out.back() == '[' ? "" : ", ", int64_t(x));
  return out + ']';
}

HALFSTEP_OPTIONS(StepLROptions, option("step_size", &O::step_size, "steps or epochs, see interval").at_least(1), gamma_of<O>())
double StepLR::factor(int64_t count) const { return std::pow(options_.gamma, double(count / *options_.step_size)); }

HALFSTEP_OPTIONS(MultiStepLROptions, option("milestones", &O::milestones, "when the rate falls, see interval").at_least(0),
                 gamma_of<O>())
MultiStepLR::MultiStepLR(Optimizer& optimizer, const Options& options) : ListedSchedule(optimizer, options) {
  std::vector<int64_t> ascending = *options.milestones;
  std::sort(ascending.begin(), ascending.end());
  options_.milestones = std::move(ascending);
  start();
}
double MultiStepLR::factor(int64_t count) const {
  const std::vector<int64_t>& milestones = *options_.milestones;
  const auto next = std::upper_bound(milestones.begin(), milestones.end(), count);
  return std::pow(options_.gamma, double(next - milestones.begin()));
}

HALFSTEP_OPTIONS(ExponentialLROptions, gamma_of<O>("factor of each step or epoch"))

HALFSTEP_OPTIONS(PolynomialLROptions, total_iters_of<O>("when 0 is reached"), option("power", &O::power, "power").at_least(0))
double PolynomialLR::factor(int64_t count) const {
  const int64_t total = options_.total_iters;
  return std::pow(1 - double(std::min(count, total)) / double(total), options_.power);
}

HALFSTEP_OPTIONS(LinearLROptions, option("start_factor", &O::start_factor, "of lr, at first").above(0).at_most(1),
                 option("end_factor", &O::end_factor, "of lr, at last").at_least(0).at_most(1), total_iters_of<O>("how long"))
double LinearLR::factor(int64_t count) const {
  const LinearLROptions& o = options_;
  return std::lerp(o.start_factor, o.end_factor, double(std::min(count, o.total_iters)) / double(o.total_iters));  // never below 0
}

HALFSTEP_OPTIONS(ConstantLROptions, option("factor", &O::factor, "of lr").at_least(0).at_most(1),
                 option("total_iters", &O::total_iters, "how long").at_least(0))

LambdaLR::LambdaLR(Optimizer& optimizer, const LambdaLROptions& options)
    : FactorSchedule(optimizer), function_(*options.lr_lambda) {
  check<ValueError>(bool(function_), "LambdaLR", "needs a function of the count of applied steps");
  start();
}

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, const MultiplicativeLROptions& options)
    : FactorSchedule(optimizer), function_(*options.lr_lambda) {
  check<ValueError>(bool(function_), "MultiplicativeLR", "needs a function of the count of applied steps");
  start();
}
const MultiplicativeLR::Product& MultiplicativeLR::at(int64_t count) const {
  while (int64_t(products_.size()) <= count) {
    const auto [product, zeros] = products_.back();
    const double next = product * function_(int64_t(products_.size()));
    products_.push_back(next == 0 ? Product{1, zeros + 1} : Product{next, zeros});
  }
  return products_[size_t(count)];
}
double MultiplicativeLR::factor(int64_t count) const { return at(count).zeros > 0 ? 0 : at(count).product; }

HALFSTEP_OPTIONS(NoamLROptions, option("d_model", &O::d_model, "width of the model").at_least(1),
                 warmup_steps_of<O>("steps of the rise"))
double NoamLR::factor(int64_t count) const {
  const double t = double(count + 1);
  return std::min(1 / std::sqrt(t), t * std::pow(double(*options_.warmup_steps), -1.5)) / std::sqrt(double(*options_.d_model));
}

HALFSTEP_OPTIONS(InverseSqrtLROptions, warmup_steps_of<O>("steps of the line"))
double InverseSqrtLR::factor(int64_t count) const {
  const double t = double(count + 1), warm = double(*options_.warmup_steps);
  return t < warm ? t / warm : std::sqrt(warm / t);
}

HALFSTEP_OPTIONS(WSDOptions, option("warmup_steps", &O::warmup_steps, "steps of the rise").at_least(0),
                 option("stable_steps", &O::stable_steps, "steps at lr").at_least(0),
                 option("decay_steps", &O::decay_steps, "steps of the decay").at_least(1),
                 option("min_factor", &O::min_factor, "of lr, at last").at_least(0).at_most(1),
                 option("decay", &O::decay, "its shape").one_of({"linear", "cosine", "1-sqrt"}))
double WSDLR::factor(int64_t count) const {
  const WSDOptions& o = options_;
  if (count < o.warmup_steps) return double(count + 1) / double(o.warmup_steps);
  const double x = std::clamp(double(count - o.warmup_steps - o.stable_steps) / double(o.decay_steps), 0.0, 1.0);
  if (o.decay == "cosine") return cosine(1, o.min_factor, x);
  return 1 - (1 - o.min_factor) * (o.decay == "linear" ? x : std::sqrt(x));
}

HALFSTEP_OPTIONS(CosineAnnealingLROptions, option("T_max", &O::T_max, "when eta_min is reached, in steps or epochs").at_least(1),
                 eta_min_of<O>("last learning rate"),
                 option("warmup_steps", &O::warmup_steps, "steps from lr/warmup_steps up to lr").at_least(0).if_changed())
void(CosineAnnealingLROptions::check)(std::string_view name) const {
  halfstep::check<ValueError>(warmup_steps < *T_max, name, "warmup_steps must be in [0, T_max), got ", warmup_steps, " with T_max ",
                              *T_max);
}
double CosineAnnealingLR::share_passed(int64_t count) const {
  const int64_t T_max = *options_.T_max, warmup = options_.warmup_steps;
  return double(std::min(count, T_max) - warmup) / double(T_max - warmup);
}
double CosineAnnealingLR::rate(double initial, int64_t count) const {
  if (count < options_.warmup_steps) return initial * double(count + 1) / double(options_.warmup_steps);
  return cosine(initial, options_.eta_min, share_passed(count));
}
std::optional<double> CosineAnnealingLR::initial_for(double rate, int64_t count) const {
  if (count < options_.warmup_steps) return rate * double(options_.warmup_steps) / double(count + 1);
  const double share = cosine(1, 0, share_passed(count));
  if (share < 1e-12) return {};  // the result is eta_min for any rate
  return options_.eta_min + (rate - options_.eta_min) / share;
}

HALFSTEP_OPTIONS(CosineAnnealingWarmRestartsOptions, option("T_0", &O::T_0, "length of the first, see interval").at_least(1),
                 option("T_mult", &O::T_mult, "length of each cycle over that of the one before").at_least(1),
                 eta_min_of<O>("lowest learning rate"))
double CosineAnnealingWarmRestarts::rate(double initial, int64_t count) const {
  int64_t length = *options_.T_0, at = options_.T_mult == 1 ? count % length : count;
  while (at >= length) {
    at -= length;
    length *= options_.T_mult;
  }
  return cosine(initial, options_.eta_min, double(at) / double(length));
}

HALFSTEP_OPTIONS(OneCycleOptions,
                 option("max_lr", &O::max_lr, "left out: the lr of the optimizer and its groups").above(0).or_zero(),
                 option("total_steps", &O::total_steps, "length of the cycle").at_least(1).or_zero(),
                 option("pct_start", &O::pct_start, "share of the rise").at_least(0).at_most(1).unseen(),
                 option("anneal_strategy", &O::anneal_strategy, "shape").one_of({"cos", "linear"}).unseen(), cycle_momentum_of<O>(),
                 momentum_of("base_momentum", &O::base_momentum, "at the top"),
                 momentum_of("max_momentum", &O::max_momentum, "at both ends"),
                 option("div_factor", &O::div_factor, "max_lr over the first rate").above(0).unseen(),
                 option("final_div_factor", &O::final_div_factor, "the first rate over the last").above(0).unseen(),
                 option("three_phase", &O::three_phase, "down as long as up, then a tail").unseen(),
                 option("epochs", &O::epochs, "in place of total_steps").at_least(1).or_zero().unseen(),
                 option("steps_per_epoch", &O::steps_per_epoch, "steps of each of them").at_least(1).or_zero().unseen())
void(OneCycleOptions::check)(std::string_view name) const {
  halfstep::check<ValueError>(total_steps != 0 || (epochs != 0 && steps_per_epoch != 0), name,
                              "needs total_steps, or epochs and steps_per_epoch");
  halfstep::check<ValueError>(max_momentum >= base_momentum, name, "max_momentum must be in [base_momentum, 1), got ",
                              max_momentum);
}
OneCycleLR::OneCycleLR(Optimizer& optimizer, const Options& options) : ListedSchedule(optimizer, options) {
  Options& o = options_;
  if (o.total_steps == 0) o.total_steps = o.epochs * o.steps_per_epoch;
  check_momentum(kName, o.cycle_momentum, optimizer);
  start();
}
// Interpolates between the turning points of the cycle: its start, its top, the end of its second phase and its end.
double OneCycleLR::interpolate(int64_t count, const double (&turns)[4]) const {
  const OneCycleOptions& o = options_;
  const double t = double(std::min(count, o.total_steps - 1)), total = double(o.total_steps), up = o.pct_start * total - 1;
  const double ends[] = {up, o.three_phase ? 2 * o.pct_start * total - 2 : total - 1, total - 1};
  const int phases = o.three_phase ? 3 : 2;
  double start = 0;
  for (int phase = 0; phase < phases; ++phase) {
    if (t <= ends[phase] || phase + 1 == phases) {
      const double x = ends[phase] == start ? 1 : (t - start) / (ends[phase] - start);
      return o.anneal_strategy == "cos" ? cosine(turns[phase], turns[phase + 1], x) : std::lerp(turns[phase], turns[phase + 1], x);
    }
    start = ends[phase];
  }
  return turns[phases];
}
double OneCycleLR::rate(double initial, int64_t count) const {
  const double top = options_.max_lr > 0 ? options_.max_lr : initial;
  const double low = top / options_.div_factor, last = low / options_.final_div_factor;
  return interpolate(count, {low, top, options_.three_phase ? low : last, last});
}
std::optional<double> OneCycleLR::momentum(int64_t count) const {
  if (!options_.cycle_momentum) return {};
  const double most = options_.max_momentum;
  return interpolate(count, {most, options_.base_momentum, most, most});
}
std::string OneCycleLR::describe() const {
  Options shown = options_;
  if (shown.max_lr == 0) shown.max_lr = initial_lr(0);
  return text_of(shown);
}

HALFSTEP_OPTIONS(CyclicOptions, option("base_lr", &O::base_lr, "lowest rate").at_least(0).required(),
                 option("max_lr", &O::max_lr, "highest rate").above(0).required(),
                 option("step_size_up", &O::step_size_up, "length of the rise").at_least(1),
                 option("step_size_down", &O::step_size_down, "left out: as the rise").at_least(1).or_zero(),
                 option("mode", &O::mode, "height of later cycles").one_of({"triangular", "triangular2", "exp_range"}),
                 option("gamma", &O::gamma, "of exp_range: gamma^count").above(0).unseen(), cycle_momentum_of<O>(),
                 momentum_of("base_momentum", &O::base_momentum, "at the top"),
                 momentum_of("max_momentum", &O::max_momentum, "at the bottom"))
void(CyclicOptions::check)(std::string_view name) const {
  halfstep::check<ValueError>(max_lr >= base_lr, name, "max_lr must be >= ", base_lr, ", got ", max_lr);
}
CyclicLR::CyclicLR(Optimizer& optimizer, const Options& options) : ListedSchedule(optimizer, options) {
  if (options_.step_size_down == 0) options_.step_size_down = options_.step_size_up;
  check_momentum(kName, options_.cycle_momentum, optimizer);
  start();
}
double CyclicLR::height(int64_t count) const {
  const CyclicOptions& o = options_;
  const double total = double(o.step_size_up + o.step_size_down), ratio = double(o.step_size_up) / total;
  const double cycle = std::floor(1 + double(count) / total), x = 1 + double(count) / total - cycle;
  const double triangle = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
  if (o.mode == "triangular2") return triangle / std::pow(2.0, cycle - 1);
  return o.mode == "exp_range" ? triangle * std::pow(o.gamma, double(count)) : triangle;
}
double CyclicLR::rate(double, int64_t count) const {
  return options_.base_lr + (options_.max_lr - options_.base_lr) * height(count);
}
std::optional<double> CyclicLR::momentum(int64_t count) const {
  if (!options_.cycle_momentum) return {};
  return options_.max_momentum - (options_.max_momentum - options_.base_momentum) * height(count);
}

}  // namespace halfstep
