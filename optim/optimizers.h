// SPDX-License-Identifier: Apache-2.0
// Optimizers with PyTorch's names, arguments, defaults and states; those that PyTorch lacks follow their papers' authors. Formulas
// are with the rules, in framework/math/*_rules.h. Each makes one pass over all parameters of a group.
//
//   RMSprop opt(net.parameters(), {.lr = 1e-3, .momentum = 0.9});
//   Adam opt({{.params = backbone, .lr = 1e-5}, {.params = head, .options = AdamOptions{.lr = 1e-3, .eps = 1e-6}}});
//
// Optimizers that need more than a pass have their own headers: two_pass.h (LAMB, Muon, Adafactor) and lbfgs.h.
#pragma once

#include <array>
#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/options.h"
#include "optim/optimizer.h"

namespace halfstep {

// Accepts a module: a class with a function `named_parameters`.
template <class M>
concept HasParameters = requires(const M& m) {
  m.named_parameters();
};

// Returns "momentum=0.9", or nothing for options without an effect: false, and a 0 that is the default.
std::string option_text(const std::string& name, const OptionValue& value, const OptionValue& default_value);
// Appends the value as numbers, a text by its hash, so that equal values give equal numbers.
void add_numbers(const OptionValue& value, std::vector<double>& out);

// Options as other libraries name them, which the compiler then answers in one line. Where O fits as well, O is taken.
struct OptionsOfElsewhere {
  double learning_rate = 0, lr = 0, beta1 = 0, beta2 = 0;
  std::array<double, 2> betas = {};
  double epsilon = 0, eps = 0, momentum = 0, decay = 0, weight_decay = 0;
  bool use_nesterov = false, nesterov = false;
};

// Adds an options struct O to an optimizer of class Base: validation, text, and overrides for each group. O has
//   static constexpr const char* kName; static const OptionList<O>& list();
//   optional: void check(std::string_view name) const, beyond the domains; void check_change(const O& before) const, for options
//   that a group keeps.
template <class O, class Base>
class WithOptions : public Base {
 public:
  using Options = O;
  WithOptions(std::vector<Tensor> params, const O& options = {})
      : WithOptions(std::vector<ParamGroup>{{.params = std::move(params)}}, options) {}
  // Takes the rate alone, as a floating number: SGD opt(net.parameters(), 0.1).
  template <std::floating_point Rate>
  WithOptions(std::vector<Tensor> params, Rate lr) : WithOptions(std::move(params), with_lr(lr)) {}
  // Gives a short compile error for SGD opt(net.parameters(), 0.1, 0.9),
  template <std::floating_point Rate, class More, class... Rest>
  WithOptions(std::vector<Tensor> params, Rate lr, More, Rest...) : WithOptions(std::move(params), lr) {
    static_assert(!std::floating_point<Rate>, "what follows the rate is given by name: {.lr = 0.1, .weight_decay = 0.01}");
  }
  // for SGD opt(net.parameters(), {.learning_rate = 0.1}),
  template <std::same_as<OptionsOfElsewhere> Other = OptionsOfElsewhere>
  WithOptions(std::vector<Tensor> params, Other) : WithOptions(std::move(params)) {
    static_assert(!std::same_as<Other, OptionsOfElsewhere>,
                  "it has no such option; names are PyTorch's: {.lr = 0.1, .momentum = 0.9}, {.betas = {0.9, 0.999}, .eps = 1e-8}");
  }
  // for AdamW opt(net, {.lr = 1e-3}) and for SGD opt(net, 0.1).
  template <HasParameters M>
  explicit WithOptions(const M&, const O& = {}) : WithOptions(std::vector<Tensor>()) {
    static_assert(!HasParameters<M>,
                  "an optimizer takes parameters, not a module: write AdamW opt(net.parameters(), {.lr = 1e-3})");
  }
  template <HasParameters M, std::floating_point Rate>
  WithOptions(const M&, Rate) : WithOptions(std::vector<Tensor>()) {
    static_assert(!HasParameters<M>, "an optimizer takes parameters, not a module: write SGD opt(net.parameters(), 0.1)");
  }
  WithOptions(std::vector<ParamGroup> groups, const O& options = {})
      : Base(with_rates(std::move(groups)), options.lr), shared_(options) {
    check_options(options);
    for (size_t g = 0; g < this->groups().size(); ++g) complete_group(g, options_of(this->groups()[g]));
  }

  void add_param_group(ParamGroup group) override {
    const O own = options_of(group);
    Base::add_param_group(std::move(with_rates({std::move(group)}).front()));
    complete_group(this->groups().size() - 1, own);
  }
  std::string describe() const override {
    std::string out = std::string(O::kName) + "(" + joined("lr=", this->last_known_lr(0));
    for (const Option<O>& o : O::list()) {
      const std::string text = o.name == "lr" ? "" : option_text(o.name, o.get(shared_), o.get(O{}));
      if (!text.empty()) out += ", " + text;
    }
    return out + ")";
  }
  // Returns the options of a group. As with param_groups(), writes take effect with the next step: opt.options().betas[0] = 0.8.
  O& options(size_t group = 0) {
    this->param_groups();  // updates rates
    return const_cast<O&>(options_of(group));
  }
  const O& options(size_t group = 0) const {
    this->param_groups();
    return options_of(group);
  }
  std::vector<double> recorded_options() override {
    this->adopt_options();
    std::vector<double> out;
    for (size_t g = 0; g < this->groups().size(); ++g) {
      O o = options_of(g);
      o.lr = 0;
      if (double* const momentum = momentum_in(o); momentum && this->device_has_momentum()) *momentum = 0;
      for (const Option<O>& option : O::list()) add_numbers(option.get(o), out);
    }
    return out;
  }

 protected:
  // Returns options() without waiting for the device.
  const O& options_of(size_t group) const {
    check<IndexError>(group < adopted_.size(), O::kName, "group must be below ", adopted_.size(), ", got ", group);
    const O* const at = std::any_cast<O>(&this->groups()[group].options);
    check<ValueError>(at, O::kName, "options of a group must be ", O::kName, "Options, got those of another optimizer");
    return *at;
  }
  // Returns the group's options with this learning rate.
  O options_with(size_t group, double lr) const {
    O out = options_of(group);
    out.lr = lr;
    return out;
  }
  const double* momentum_of(size_t group) const override { return momentum_in(const_cast<O&>(options_of(group))); }
  const O& shared() const { return shared_; }  // options of groups that have none of their own
  double* lr_option(size_t group) override {
    O* const at = std::any_cast<O>(&this->group(group).options);
    return at ? &at->lr : nullptr;
  }
  void adopt(size_t g) override {
    std::optional<double>& decay = this->group(g).weight_decay;
    if constexpr (requires(O o) { o.weight_decay; }) {
      if (decay == adopted_[g].weight_decay && same_values(options_of(g), adopted_[g])) return;
    } else {
      check<ValueError>(!decay, O::kName, "has no weight_decay, got ", decay.value_or(0));
      if (same_values(options_of(g), adopted_[g])) return;
    }
    O now = options_of(g);
    if constexpr (requires { now.weight_decay; }) {
      if (decay && *decay != adopted_[g].weight_decay) now.weight_decay = *decay;
    }
    if (!same_values(now, adopted_[g])) {
      check_options(now);
      if constexpr (requires { now.check_change(now); }) now.check_change(adopted_[g]);
      this->group(g).template as<O>() = adopted_[g] = now;
    }
    if constexpr (requires { now.weight_decay; }) decay = now.weight_decay;
  }

  OptionValues option_values(size_t group) const override {
    OptionValues out;
    for (const Option<O>& o : O::list()) {
      if (o.name != "lr") out[o.name] = stored(o.get(options_of(group)));
    }
    return out;
  }
  void set_option_values(size_t group, const OptionValues& values) override {
    O now = options_of(group);
    for (const auto& [name, value] : values) {
      bool known = false;
      for (const Option<O>& o : O::list()) known = known || (o.name == name && o.name != "lr" && o.put(now, from_stored(value, o)));
      check<ValueError>(known, O::kName, "the option \"", name, "\" of a state has no place in ", describe());
    }
    check_options(now);
    if constexpr (requires { now.check_change(now); }) now.check_change(adopted_[group]);
    this->group(group).template as<O>() = adopted_[group] = now;
    if constexpr (requires { now.weight_decay; }) this->group(group).weight_decay = now.weight_decay;
  }

 private:
  static O with_lr(double lr) {
    O options;
    options.lr = lr;
    return options;
  }
  // Sets the rate of each group whose options alone have one.
  static std::vector<ParamGroup> with_rates(std::vector<ParamGroup> groups) {
    for (ParamGroup& g : groups) {
      if (const O* own = std::any_cast<O>(&g.options); own && !g.lr) g.lr = own->lr;
    }
    return groups;
  }
  O options_of(const ParamGroup& group) const {
    if (!group.options.has_value()) {
      if constexpr (!requires(O o) { o.weight_decay; })
        check<ValueError>(!group.weight_decay, O::kName, "has no weight_decay, got ", group.weight_decay.value_or(0));
      return shared_;
    }
    const O* own = std::any_cast<O>(&group.options);
    check<ValueError>(own, O::kName, "options of a group must be ", O::kName, "Options, got those of another optimizer");
    check_options(*own);
    return *own;
  }
  // Sets all values of a group that Base has added.
  void complete_group(size_t g, O own) {
    ParamGroup& group = this->group(g);
    own.lr = *group.lr;
    if constexpr (requires { own.weight_decay; })
      group.weight_decay = own.weight_decay = group.weight_decay.value_or(own.weight_decay);
    group.options = own;
    adopted_.push_back(own);
  }
  // Points to the momentum, or beta1; null: there is none.
  static double* momentum_in(O& o) {
    if constexpr (requires { o.betas; })
      return &o.betas[0];
    else if constexpr (requires { o.momentum; })
      return &o.momentum;
    else
      return nullptr;
  }
  static void check_options(const O& options) { halfstep::check_options(O::kName, options); }

  O shared_;
  std::vector<O> adopted_;  // by group, as last adopted
};

// An optimizer of one rule. O has, besides, UpdateRule rule() const, and std::vector<std::string> states() const: the names of the
// rule's states, in its order. Optional: kNumber, the name of a number that it keeps for each parameter; kDerived with Tensor
// derived(const Tensor& step) const, a number that PyTorch keeps and that follows from the step count; kNumberMayLack: the rule
// computes the number itself if it is NaN, as after loading a state that lacks it.
template <class O>
class RuleOptimizer : public WithOptions<O, FusedOptimizer> {
 public:
  using WithOptions<O, FusedOptimizer>::WithOptions;

 protected:
  UpdateRule rule(size_t group, double lr) const override { return this->options_with(group, lr).rule(); }
  std::vector<std::string> states(size_t group) const override { return this->options_of(group).states(); }
  std::vector<std::string> late_state_names(size_t group) const override {
    // Options with the fewest and the most states: any momentum above 0 has the same ones.
    O least = this->options_of(group), most = least;
    if constexpr (requires { least.momentum; }) least.momentum = 0, most.momentum = 0.5;
    if constexpr (requires { least.centered; }) least.centered = false, most.centered = true;
    if constexpr (requires { least.amsgrad; }) least.amsgrad = false, most.amsgrad = true;
    std::vector<std::string> out = most.states();
    for (const std::string& name : least.states()) std::erase(out, name);
    return out;
  }
  const char* number() const override {
    if constexpr (requires { O::kNumber; }) return O::kNumber;
    return nullptr;
  }
  const char* derived_name() const override {
    if constexpr (requires { O::kDerived; }) return O::kDerived;
    return nullptr;
  }
  bool may_lack(const std::string& name) const override {
    if constexpr (requires { O::kNumberMayLack; }) return name == "step" || name == O::kNumber;
    return name == "step";
  }
  Tensor derived(size_t group, const Tensor& step) const override {
    if constexpr (requires { O::kDerived; }) return this->options_of(group).derived(step);
    return {};
  }
};

#define HALFSTEP_OPTIMIZER_OPTIONS(Options, Name) \
  static constexpr const char* kName = Name;      \
  static const OptionList<Options>& list();       \
  std::vector<std::string> states() const;        \
  UpdateRule rule() const

struct SGDOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
  void(check)(std::string_view name) const;
  HALFSTEP_OPTIMIZER_OPTIONS(SGDOptions, "SGD");
};
using SGD = RuleOptimizer<SGDOptions>;

struct AdamOptions {
  double lr = 1e-3;
  NumberTuple<2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;
  bool amsgrad = false, maximize = false;
  HALFSTEP_OPTIMIZER_OPTIONS(AdamOptions, "Adam");
};
using Adam = RuleOptimizer<AdamOptions>;

// Adam with decoupled weight decay.
struct AdamWOptions {
  double lr = 1e-3;
  NumberTuple<2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0.01;
  bool amsgrad = false, maximize = false;
  HALFSTEP_OPTIMIZER_OPTIONS(AdamWOptions, "AdamW");
};
using AdamW = RuleOptimizer<AdamWOptions>;

struct NAdamOptions {
  double lr = 2e-3;
  NumberTuple<2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3;
  bool decoupled_weight_decay = false, maximize = false;
  static constexpr const char* kNumber = "mu_product";
  HALFSTEP_OPTIMIZER_OPTIONS(NAdamOptions, "NAdam");
};
using NAdam = RuleOptimizer<NAdamOptions>;

struct RAdamOptions {
  double lr = 1e-3;
  NumberTuple<2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;
  bool decoupled_weight_decay = false, maximize = false;
  HALFSTEP_OPTIMIZER_OPTIONS(RAdamOptions, "RAdam");
};
using RAdam = RuleOptimizer<RAdamOptions>;

struct AdamaxOptions {
  double lr = 2e-3;
  NumberTuple<2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;
  bool maximize = false;
  HALFSTEP_OPTIMIZER_OPTIONS(AdamaxOptions, "Adamax");
};
using Adamax = RuleOptimizer<AdamaxOptions>;

struct RMSpropOptions {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false, maximize = false;
  HALFSTEP_OPTIMIZER_OPTIONS(RMSpropOptions, "RMSprop");
};
using RMSprop = RuleOptimizer<RMSpropOptions>;

struct AdagradOptions {
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
  bool maximize = false;
  HALFSTEP_OPTIMIZER_OPTIONS(AdagradOptions, "Adagrad");
};
using Adagrad = RuleOptimizer<AdagradOptions>;

struct AdadeltaOptions {
  double lr = 1.0, rho = 0.9, eps = 1e-6, weight_decay = 0;
  bool maximize = false;
  HALFSTEP_OPTIMIZER_OPTIONS(AdadeltaOptions, "Adadelta");
};
using Adadelta = RuleOptimizer<AdadeltaOptions>;

// The averages are its state "ax". As in PyTorch, a step computes the step size of the next one, "eta": a change of the learning
// rate takes effect one step later. "mu", the weight of the next parameters in the averages, follows from the step count.
struct ASGDOptions {
  double lr = 1e-2, lambd = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0;
  bool maximize = false;
  static constexpr const char *kNumber = "eta", *kDerived = "mu";
  static constexpr bool kNumberMayLack = true;
  Tensor derived(const Tensor& step) const;
  HALFSTEP_OPTIMIZER_OPTIONS(ASGDOptions, "ASGD");
};
using ASGD = RuleOptimizer<ASGDOptions>;

// For full batches. lr is the initial step size of each element.
struct RpropOptions {
  double lr = 1e-2;
  NumberTuple<2> etas = {0.5, 1.2}, step_sizes = {1e-6, 50};
  bool maximize = false;
  void(check)(std::string_view name) const;
  HALFSTEP_OPTIMIZER_OPTIONS(RpropOptions, "Rprop");
};
using Rprop = RuleOptimizer<RpropOptions>;

struct LionOptions {
  double lr = 1e-4;
  NumberTuple<2> betas = {0.9, 0.99};
  double weight_decay = 0;
  bool maximize = false;
  HALFSTEP_OPTIMIZER_OPTIONS(LionOptions, "Lion");
};
using Lion = RuleOptimizer<LionOptions>;

// alpha_warmup, beta3_warmup: steps over which they grow to their values, usually the training's number of steps; 0: none.
struct AdEMAMixOptions {
  double lr = 1e-3;
  NumberTuple<3> betas = {0.9, 0.999, 0.9999};
  double alpha = 2, eps = 1e-8, weight_decay = 0;
  int64_t alpha_warmup = 0, beta3_warmup = 0;
  bool maximize = false;
  HALFSTEP_OPTIMIZER_OPTIONS(AdEMAMixOptions, "AdEMAMix");
};
using AdEMAMix = RuleOptimizer<AdEMAMixOptions>;

}  // namespace halfstep
