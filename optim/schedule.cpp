// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "framework/base/text_stream.h"

namespace halfstep {
namespace {

// Prints "Name(key=value, ...)" of pairs that is() makes.
template <class... Pairs>
std::string text_of(const char* name, const Pairs&... pairs) {
  TextWriter out;
  out << name << '(';
  const char* comma = "";
  const auto add = [&](const auto& pair) {
    out << comma << pair.first << '=' << pair.second;
    comma = ", ";
  };
  (add(pairs), ...);
  out << ')';
  return out.str();
}
template <class T>
std::pair<const char*, T> is(const char* key, T value) {
  return {key, value};
}

void check_count(const char* name, const char* key, int64_t value, int64_t least) {
  check<ValueError>(value >= least, name, key, " must be >= ", least, ", got ", value);
}
void check_least(const char* name, const char* key, double value, double least) {
  check<ValueError>(value >= least, name, key, " must be >= ", least, ", got ", value);
}
void check_word(const char* name, const char* key, const std::string& value, const std::vector<std::string>& all) {
  std::string words;
  for (const std::string& w : all) words += (words.empty() ? "" : ", ") + w;
  check<ValueError>(std::find(all.begin(), all.end(), value) != all.end(), name, key, " must be one of ", words, ", got ", value);
}

// Follows half a cosine from `from` to `to` as x goes from 0 to 1.
double cosine(double from, double to, double x) { return to + (from - to) * (1 + std::cos(std::numbers::pi * x)) / 2; }

}  // namespace

std::optional<double> FactorSchedule::initial_for(double rate, int64_t count) const {
  const double initial = rate / factor(count);
  if (!std::isfinite(initial)) return {};
  return initial;
}

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : FactorSchedule(optimizer), step_size_(step_size), gamma_(gamma) {
  check_count("StepLR", "step_size", step_size, 1);
  check_least("StepLR", "gamma", gamma, 0);
  start();
}
double StepLR::factor(int64_t count) const { return std::pow(gamma_, double(count / step_size_)); }
std::string StepLR::describe() const { return text_of("StepLR", is("step_size", step_size_), is("gamma", gamma_)); }

MultiStepLR::MultiStepLR(Optimizer& optimizer, const Milestones& milestones, double gamma)
    : FactorSchedule(optimizer), milestones_(milestones.values()), gamma_(gamma) {
  std::sort(milestones_.begin(), milestones_.end());
  for (int64_t m : milestones_) check_count("MultiStepLR", "milestones", m, 0);
  check_least("MultiStepLR", "gamma", gamma, 0);
  start();
}
double MultiStepLR::factor(int64_t count) const {
  return std::pow(gamma_, double(std::upper_bound(milestones_.begin(), milestones_.end(), count) - milestones_.begin()));
}
std::string MultiStepLR::describe() const {
  std::string all;
  for (int64_t m : milestones_) all += (all.empty() ? "[" : ", ") + std::to_string(m);
  return text_of("MultiStepLR", is("milestones", all.empty() ? "[]" : all + "]"), is("gamma", gamma_));
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma) : FactorSchedule(optimizer), gamma_(gamma) {
  check_least("ExponentialLR", "gamma", gamma, 0);
  start();
}
std::string ExponentialLR::describe() const { return text_of("ExponentialLR", is("gamma", gamma_)); }

PolynomialLR::PolynomialLR(Optimizer& optimizer, int64_t total_iters, double power)
    : FactorSchedule(optimizer), total_iters_(total_iters), power_(power) {
  check_count("PolynomialLR", "total_iters", total_iters, 1);
  check_least("PolynomialLR", "power", power, 0);
  start();
}
double PolynomialLR::factor(int64_t count) const {
  return std::pow(1 - double(std::min(count, total_iters_)) / double(total_iters_), power_);
}
std::string PolynomialLR::describe() const { return text_of("PolynomialLR", is("total_iters", total_iters_), is("power", power_)); }

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor, int64_t total_iters)
    : FactorSchedule(optimizer), start_(start_factor), end_(end_factor), total_iters_(total_iters) {
  check<ValueError>(start_factor > 0 && start_factor <= 1, "LinearLR", "start_factor must be in (0, 1], got ", start_factor);
  check<ValueError>(end_factor >= 0 && end_factor <= 1, "LinearLR", "end_factor must be in [0, 1], got ", end_factor);
  check_count("LinearLR", "total_iters", total_iters, 1);
  start();
}
double LinearLR::factor(int64_t count) const {
  return std::lerp(start_, end_, double(std::min(count, total_iters_)) / double(total_iters_));  // never below 0
}
std::string LinearLR::describe() const {
  return text_of("LinearLR", is("start_factor", start_), is("end_factor", end_), is("total_iters", total_iters_));
}

ConstantLR::ConstantLR(Optimizer& optimizer, double factor, int64_t total_iters)
    : FactorSchedule(optimizer), factor_(factor), total_iters_(total_iters) {
  check<ValueError>(factor >= 0 && factor <= 1, "ConstantLR", "factor must be in [0, 1], got ", factor);
  check_count("ConstantLR", "total_iters", total_iters, 0);
  start();
}
std::string ConstantLR::describe() const { return text_of("ConstantLR", is("factor", factor_), is("total_iters", total_iters_)); }

LambdaLR::LambdaLR(Optimizer& optimizer, const LambdaLRArguments& a) : FactorSchedule(optimizer), function_(*a.lr_lambda) {
  check<ValueError>(bool(function_), "LambdaLR", "needs a function of the count of applied steps");
  start();
}

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, const MultiplicativeLRArguments& a)
    : FactorSchedule(optimizer), function_(*a.lr_lambda) {
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

NoamLR::NoamLR(Optimizer& optimizer, int64_t d_model, int64_t warmup_steps)
    : FactorSchedule(optimizer), d_model_(d_model), warmup_steps_(warmup_steps) {
  check_count("NoamLR", "d_model", d_model, 1);
  check_count("NoamLR", "warmup_steps", warmup_steps, 1);
  start();
}
double NoamLR::factor(int64_t count) const {
  const double t = double(count + 1);
  return std::min(1 / std::sqrt(t), t * std::pow(double(warmup_steps_), -1.5)) / std::sqrt(double(d_model_));
}
std::string NoamLR::describe() const { return text_of("NoamLR", is("d_model", d_model_), is("warmup_steps", warmup_steps_)); }

InverseSqrtLR::InverseSqrtLR(Optimizer& optimizer, int64_t warmup_steps) : FactorSchedule(optimizer), warmup_steps_(warmup_steps) {
  check_count("InverseSqrtLR", "warmup_steps", warmup_steps, 1);
  start();
}
double InverseSqrtLR::factor(int64_t count) const {
  const double t = double(count + 1), warm = double(warmup_steps_);
  return t < warm ? t / warm : std::sqrt(warm / t);
}
std::string InverseSqrtLR::describe() const { return text_of("InverseSqrtLR", is("warmup_steps", warmup_steps_)); }

WSDLR::WSDLR(Optimizer& optimizer, const WSDOptions& options) : FactorSchedule(optimizer), options_(options) {
  check_count("WSDLR", "warmup_steps", options.warmup_steps, 0);
  check_count("WSDLR", "stable_steps", options.stable_steps, 0);
  check_count("WSDLR", "decay_steps", options.decay_steps, 1);
  check<ValueError>(options.min_factor >= 0 && options.min_factor <= 1, "WSDLR", "min_factor must be in [0, 1], got ",
                    options.min_factor);
  check_word("WSDLR", "decay", options.decay, {"linear", "cosine", "1-sqrt"});
  start();
}
double WSDLR::factor(int64_t count) const {
  const WSDOptions& o = options_;
  if (count < o.warmup_steps) return double(count + 1) / double(o.warmup_steps);
  const double x = std::clamp(double(count - o.warmup_steps - o.stable_steps) / double(o.decay_steps), 0.0, 1.0);
  if (o.decay == "cosine") return cosine(1, o.min_factor, x);
  return 1 - (1 - o.min_factor) * (o.decay == "linear" ? x : std::sqrt(x));
}
std::string WSDLR::describe() const {
  return text_of("WSDLR", is("warmup_steps", options_.warmup_steps), is("stable_steps", options_.stable_steps),
                 is("decay_steps", options_.decay_steps), is("min_factor", options_.min_factor), is("decay", options_.decay));
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min, int64_t warmup_steps)
    : Schedule(optimizer), t_max_(t_max), warmup_steps_(warmup_steps), eta_min_(eta_min) {
  check_count("CosineAnnealingLR", "t_max", t_max, 1);
  check_least("CosineAnnealingLR", "eta_min", eta_min, 0);
  check<ValueError>(warmup_steps >= 0 && warmup_steps < t_max, "CosineAnnealingLR", "warmup_steps must be in [0, t_max), got ",
                    warmup_steps, " with t_max ", t_max);
  start();
}
double CosineAnnealingLR::rate(double initial, int64_t count) const {
  if (count < warmup_steps_) return initial * double(count + 1) / double(warmup_steps_);
  return cosine(initial, eta_min_, double(std::min(count, t_max_) - warmup_steps_) / double(t_max_ - warmup_steps_));
}
std::optional<double> CosineAnnealingLR::initial_for(double rate, int64_t count) const {
  if (count < warmup_steps_) return rate * double(warmup_steps_) / double(count + 1);
  const double share = cosine(1, 0, double(std::min(count, t_max_) - warmup_steps_) / double(t_max_ - warmup_steps_));
  if (share < 1e-12) return {};  // the result is eta_min for any rate
  return eta_min_ + (rate - eta_min_) / share;
}
std::string CosineAnnealingLR::describe() const {
  return warmup_steps_ > 0
             ? text_of("CosineAnnealingLR", is("t_max", t_max_), is("eta_min", eta_min_), is("warmup_steps", warmup_steps_))
             : text_of("CosineAnnealingLR", is("t_max", t_max_), is("eta_min", eta_min_));
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t t_0, int64_t t_mult, double eta_min)
    : Schedule(optimizer), t_0_(t_0), t_mult_(t_mult), eta_min_(eta_min) {
  check_count("CosineAnnealingWarmRestarts", "t_0", t_0, 1);
  check_count("CosineAnnealingWarmRestarts", "t_mult", t_mult, 1);
  check_least("CosineAnnealingWarmRestarts", "eta_min", eta_min, 0);
  start();
}
double CosineAnnealingWarmRestarts::rate(double initial, int64_t count) const {
  int64_t length = t_0_, at = t_mult_ == 1 ? count % t_0_ : count;
  while (at >= length) {
    at -= length;
    length *= t_mult_;
  }
  return cosine(initial, eta_min_, double(at) / double(length));
}
std::string CosineAnnealingWarmRestarts::describe() const {
  return text_of("CosineAnnealingWarmRestarts", is("t_0", t_0_), is("t_mult", t_mult_), is("eta_min", eta_min_));
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, double max_lr, int64_t total_steps)
    : OneCycleLR(optimizer, OneCycleOptions{.max_lr = max_lr, .total_steps = total_steps}) {}
OneCycleLR::OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options) : Schedule(optimizer), options_(options) {
  OneCycleOptions& o = options_;
  check<ValueError>(o.total_steps != 0 || (o.epochs != 0 && o.steps_per_epoch != 0), "OneCycleLR",
                    "needs total_steps, or epochs and steps_per_epoch");
  if (o.total_steps == 0) {
    check_count("OneCycleLR", "epochs", o.epochs, 1);
    check_count("OneCycleLR", "steps_per_epoch", o.steps_per_epoch, 1);
    o.total_steps = o.epochs * o.steps_per_epoch;
  }
  check_count("OneCycleLR", "total_steps", o.total_steps, 1);
  check_least("OneCycleLR", "max_lr", o.max_lr, 0);
  check<ValueError>(o.pct_start >= 0 && o.pct_start <= 1, "OneCycleLR", "pct_start must be in [0, 1], got ", o.pct_start);
  check_word("OneCycleLR", "anneal_strategy", o.anneal_strategy, {"cos", "linear"});
  check<ValueError>(o.div_factor > 0 && o.final_div_factor > 0, "OneCycleLR", "div_factor and final_div_factor must be > 0, got ",
                    o.div_factor, " and ", o.final_div_factor);
  check_least("OneCycleLR", "base_momentum", o.base_momentum, 0);
  check<ValueError>(o.max_momentum >= o.base_momentum && o.max_momentum < 1, "OneCycleLR",
                    "max_momentum must be in [base_momentum, 1), got ", o.max_momentum);
  check<ValueError>(!o.cycle_momentum || optimizer.has_momentum(), "OneCycleLR",
                    "cycle_momentum needs an optimizer with a momentum or betas, got ", optimizer.describe(),
                    Help{"set cycle_momentum to false"});
  const double own = optimizer.initial_lr(0);
  check<ValueError>(o.max_lr == 0 || own > 0, "OneCycleLR", "max_lr is in proportion to the optimizer's lr, which must be > 0");
  start();
}
// Interpolates between the turning points of the cycle: its start, its top, the end of its second phase and its end.
double OneCycleLR::at(int64_t count, const double (&turns)[4]) const {
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
// Reads the current rates, which a loaded state may have changed.
double OneCycleLR::scale() const {
  const double own = initial_lr(0);
  return options_.max_lr == 0 || own == 0 ? 1 : options_.max_lr / own;
}
double OneCycleLR::rate(double initial, int64_t count) const {
  const double top = initial * scale(), low = top / options_.div_factor, last = low / options_.final_div_factor;
  return at(count, {low, top, options_.three_phase ? low : last, last});
}
std::optional<double> OneCycleLR::momentum(int64_t count) const {
  if (!options_.cycle_momentum) return {};
  const double most = options_.max_momentum;
  return at(count, {most, options_.base_momentum, most, most});
}
std::string OneCycleLR::describe() const {
  return text_of("OneCycleLR", is("max_lr", options_.max_lr == 0 ? initial_lr(0) : options_.max_lr),
                 is("total_steps", options_.total_steps));
}

CyclicLR::CyclicLR(Optimizer& optimizer, const CyclicOptions& options) : Schedule(optimizer), options_(options) {
  CyclicOptions& o = options_;
  if (o.step_size_down == 0) o.step_size_down = o.step_size_up;
  check_least("CyclicLR", "base_lr", o.base_lr, 0);
  check_least("CyclicLR", "max_lr", o.max_lr, o.base_lr);
  check_count("CyclicLR", "step_size_up", o.step_size_up, 1);
  check_count("CyclicLR", "step_size_down", o.step_size_down, 1);
  check_word("CyclicLR", "mode", o.mode, {"triangular", "triangular2", "exp_range"});
  check<ValueError>(!o.cycle_momentum || optimizer.has_momentum(), "CyclicLR",
                    "cycle_momentum needs an optimizer with a momentum or betas, got ", optimizer.describe(),
                    Help{"set cycle_momentum to false"});
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
std::string CyclicLR::describe() const {
  return text_of("CyclicLR", is("base_lr", options_.base_lr), is("max_lr", options_.max_lr),
                 is("step_size_up", options_.step_size_up), is("step_size_down", options_.step_size_down),
                 is("mode", options_.mode));
}

}  // namespace halfstep
