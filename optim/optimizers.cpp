// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizers.h"

#include <functional>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

template <class O>
Option<O> lr_of() {
  return option("lr", &O::lr, "learning rate").at_least(0);
}
template <class O>
Option<O> decay_of(const char* doc = "weight decay, added to the gradient") {
  return option("weight_decay", &O::weight_decay, doc).at_least(0);
}
template <class O>
Option<O> betas_of(const char* doc = "decay rates of the two moments") {
  return option("betas", &O::betas, doc).at_least(0).under(1);
}
template <class O>
Option<O> eps_of() {
  return option("eps", &O::eps, "added to the denominator").at_least(0);
}
template <class O>
Option<O> maximize_of() {
  return option("maximize", &O::maximize, "climb instead of descend");
}
template <class O>
Option<O> decoupled_of() {
  return option("decoupled_weight_decay", &O::decoupled_weight_decay, "shrink the weights instead of adding to the gradient");
}
constexpr const char* kShrinks = "weight decay, apart from the gradient";

using StateNames = std::vector<std::string>;

}  // namespace

std::string option_text(const std::string& name, const OptionValue& value, const OptionValue& default_value) {
  const auto* const number = std::get_if<double>(&value);
  const auto* const flag = std::get_if<bool>(&value);
  if (number && *number == 0 && std::get<double>(default_value) == 0) return {};
  if (flag && !*flag) return {};
  std::string out = name + "=";
  if (number) return out + joined(*number);
  if (flag) return out + "True";
  if (const auto* const integer = std::get_if<int64_t>(&value)) return out + joined(*integer);
  if (const auto* const text = std::get_if<std::string>(&value)) return out + *text;
  out += '(';
  for (const double x : std::get<std::vector<double>>(value)) out += joined(out.back() == '(' ? "" : ", ", x);
  return out + ')';
}

void add_numbers(const OptionValue& value, std::vector<double>& out) {
  const StoredOption kept = stored(value);
  if (const auto* const text = std::get_if<std::string>(&kept)) return out.push_back(double(std::hash<std::string>{}(*text)));
  for (const double x : std::get<std::vector<double>>(kept)) out.push_back(x);
}

HALFSTEP_OPTIONS(SGDOptions, lr_of<O>(),
                 option("momentum", &O::momentum, "share of the last step that is kept").at_least(0).under(1),
                 option("dampening", &O::dampening, "share of the gradient left out of the buffer"), decay_of<O>(),
                 option("nesterov", &O::nesterov, "look one step ahead"), maximize_of<O>())
void SGDOptions::check(std::string_view name) const {
  halfstep::check<ValueError>(!nesterov || (momentum > 0 && dampening == 0), name,
                              "nesterov needs momentum > 0 and dampening 0, got momentum ", momentum, " and dampening ", dampening);
}
StateNames SGDOptions::states() const { return momentum == 0 ? StateNames{} : StateNames{"momentum_buffer"}; }
UpdateRule SGDOptions::rule() const {
  return math::SgdRule{.lr = lr,
                       .momentum = momentum,
                       .dampening = dampening,
                       .weight_decay = weight_decay,
                       .nesterov = nesterov,
                       .maximize = maximize};
}

namespace {
template <class O>
OptionList<O> adam_list(const char* decay) {
  return {lr_of<O>(),
          betas_of<O>(),
          eps_of<O>(),
          decay_of<O>(decay),
          option("amsgrad", &O::amsgrad, "use the largest second moment seen"),
          maximize_of<O>()};
}
StateNames adam_states(bool amsgrad) {
  return amsgrad ? StateNames{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"} : StateNames{"exp_avg", "exp_avg_sq"};
}
template <class O>
math::AdamRule adam_rule(const O& o, bool decoupled) {
  return {.lr = o.lr,
          .beta1 = o.betas[0],
          .beta2 = o.betas[1],
          .eps = o.eps,
          .weight_decay = o.weight_decay,
          .decoupled = decoupled,
          .amsgrad = o.amsgrad,
          .maximize = o.maximize};
}
}  // namespace

HALFSTEP_OPTIONS(AdamOptions, adam_list<O>("weight decay, added to the gradient"))
StateNames AdamOptions::states() const { return adam_states(amsgrad); }
UpdateRule AdamOptions::rule() const { return adam_rule(*this, false); }

HALFSTEP_OPTIONS(AdamWOptions, adam_list<O>(kShrinks))
StateNames AdamWOptions::states() const { return adam_states(amsgrad); }
UpdateRule AdamWOptions::rule() const { return adam_rule(*this, true); }

HALFSTEP_OPTIONS(NAdamOptions, lr_of<O>(), betas_of<O>(), eps_of<O>(), decay_of<O>(),
                 option("momentum_decay", &O::momentum_decay, "pace at which it grows").at_least(0), decoupled_of<O>(),
                 maximize_of<O>())
StateNames NAdamOptions::states() const { return {"exp_avg", "exp_avg_sq"}; }
UpdateRule NAdamOptions::rule() const {
  return math::NadamRule{.lr = lr,
                         .beta1 = betas[0],
                         .beta2 = betas[1],
                         .eps = eps,
                         .weight_decay = weight_decay,
                         .momentum_decay = momentum_decay,
                         .decoupled = decoupled_weight_decay,
                         .maximize = maximize};
}

HALFSTEP_OPTIONS(RAdamOptions, lr_of<O>(), betas_of<O>(), eps_of<O>(), decay_of<O>(), decoupled_of<O>(), maximize_of<O>())
StateNames RAdamOptions::states() const { return {"exp_avg", "exp_avg_sq"}; }
UpdateRule RAdamOptions::rule() const {
  return math::RadamRule{.lr = lr,
                         .beta1 = betas[0],
                         .beta2 = betas[1],
                         .eps = eps,
                         .weight_decay = weight_decay,
                         .decoupled = decoupled_weight_decay,
                         .maximize = maximize};
}

HALFSTEP_OPTIONS(AdamaxOptions, lr_of<O>(), betas_of<O>("decay rates of the moment and of the largest gradient"),
                 option("eps", &O::eps, "added to the size of a gradient").at_least(0), decay_of<O>(), maximize_of<O>())
StateNames AdamaxOptions::states() const { return {"exp_avg", "exp_inf"}; }
UpdateRule AdamaxOptions::rule() const {
  return math::AdamaxRule{
      .lr = lr, .beta1 = betas[0], .beta2 = betas[1], .eps = eps, .weight_decay = weight_decay, .maximize = maximize};
}

HALFSTEP_OPTIONS(RMSpropOptions, lr_of<O>(), option("alpha", &O::alpha, "decay rate of the mean square").at_least(0), eps_of<O>(),
                 decay_of<O>(), option("momentum", &O::momentum, "share of the last step that is kept").at_least(0).under(1),
                 option("centered", &O::centered, "divide by the deviation, not by the root mean square"), maximize_of<O>())
StateNames RMSpropOptions::states() const {
  StateNames names{"square_avg"};
  if (momentum > 0) names.push_back("momentum_buffer");
  if (centered) names.push_back("grad_avg");
  return names;
}
UpdateRule RMSpropOptions::rule() const {
  return math::RmspropRule{.lr = lr,
                           .alpha = alpha,
                           .eps = eps,
                           .weight_decay = weight_decay,
                           .momentum = momentum,
                           .centered = centered,
                           .with_momentum = momentum > 0,
                           .maximize = maximize};
}

HALFSTEP_OPTIONS(
    AdagradOptions, lr_of<O>(), option("lr_decay", &O::lr_decay, "lr / (1 + steps lr_decay)").at_least(0), decay_of<O>(),
    option("initial_accumulator_value", &O::initial_accumulator_value, "initial value of the sums of squares").at_least(0),
    eps_of<O>(), maximize_of<O>())
StateNames AdagradOptions::states() const { return {"sum"}; }
UpdateRule AdagradOptions::rule() const {
  return math::AdagradRule{.lr = lr,
                           .lr_decay = lr_decay,
                           .weight_decay = weight_decay,
                           .initial_accumulator_value = initial_accumulator_value,
                           .eps = eps,
                           .maximize = maximize};
}

HALFSTEP_OPTIONS(AdadeltaOptions, lr_of<O>(), option("rho", &O::rho, "decay rate of the mean squares").at_least(0).under(1),
                 eps_of<O>(), decay_of<O>(), maximize_of<O>())
StateNames AdadeltaOptions::states() const { return {"square_avg", "acc_delta"}; }
UpdateRule AdadeltaOptions::rule() const {
  return math::AdadeltaRule{.lr = lr, .rho = rho, .eps = eps, .weight_decay = weight_decay, .maximize = maximize};
}

HALFSTEP_OPTIONS(ASGDOptions, lr_of<O>(), option("lambd", &O::lambd, "decay of the weights and of the step size").at_least(0),
                 option("alpha", &O::alpha, "power of the step size").at_least(0),
                 option("t0", &O::t0, "step that averaging begins at"), decay_of<O>(), maximize_of<O>())
StateNames ASGDOptions::states() const { return {"ax"}; }
Tensor ASGDOptions::derived(const Tensor& step) const {
  const NoGrad off;
  return reciprocal(clamp(step - t0, 1.0, {}));
}
UpdateRule ASGDOptions::rule() const {
  return math::AsgdRule{.lr = lr, .lambd = lambd, .alpha = alpha, .t0 = t0, .weight_decay = weight_decay, .maximize = maximize};
}

HALFSTEP_OPTIONS(RpropOptions, lr_of<O>(),
                 option("etas", &O::etas, "factors of the step size where the sign changes, and where not").above(0),
                 option("step_sizes", &O::step_sizes, "its bounds").at_least(0), maximize_of<O>())
void RpropOptions::check(std::string_view name) const {
  halfstep::check<ValueError>(etas[0] < 1 && etas[1] > 1, name, "etas must be below and above 1, got ", etas[0], " and ", etas[1]);
  halfstep::check<ValueError>(step_sizes[0] <= step_sizes[1], name, "step_sizes must be in order, got ", step_sizes[0], " and ",
                              step_sizes[1]);
}
StateNames RpropOptions::states() const { return {"prev", "step_size"}; }
UpdateRule RpropOptions::rule() const {
  return math::RpropRule{.lr = lr,
                         .eta_minus = etas[0],
                         .eta_plus = etas[1],
                         .step_min = step_sizes[0],
                         .step_max = step_sizes[1],
                         .maximize = maximize};
}

HALFSTEP_OPTIONS(LionOptions, lr_of<O>(), betas_of<O>("shares of the moment in the step, and in the next moment"),
                 decay_of<O>(kShrinks), maximize_of<O>())
StateNames LionOptions::states() const { return {"exp_avg"}; }
UpdateRule LionOptions::rule() const {
  return math::LionRule{.lr = lr, .beta1 = betas[0], .beta2 = betas[1], .weight_decay = weight_decay, .maximize = maximize};
}

HALFSTEP_OPTIONS(AdEMAMixOptions, lr_of<O>(),
                 option("betas", &O::betas, "decay rates: fast moment, second moment, slow moment").at_least(0).under(1),
                 option("alpha", &O::alpha, "share of the slow moment").at_least(0),
                 option("alpha_warmup", &O::alpha_warmup, "steps over which alpha grows; 0: none").at_least(0),
                 option("beta3_warmup", &O::beta3_warmup, "steps over which the third beta grows; 0: none").at_least(0),
                 eps_of<O>(), decay_of<O>(kShrinks), maximize_of<O>())
StateNames AdEMAMixOptions::states() const { return {"exp_avg_fast", "exp_avg_slow", "exp_avg_sq"}; }
UpdateRule AdEMAMixOptions::rule() const {
  return math::AdemamixRule{.lr = lr,
                            .beta1 = betas[0],
                            .beta2 = betas[1],
                            .beta3 = betas[2],
                            .alpha = alpha,
                            .eps = eps,
                            .weight_decay = weight_decay,
                            .alpha_warmup = double(alpha_warmup),
                            .beta3_warmup = double(beta3_warmup),
                            .maximize = maximize};
}

}  // namespace halfstep
