// SPDX-License-Identifier: Apache-2.0
#include "optim/two_pass.h"

#include <algorithm>
#include <cmath>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "optim/gradients.h"

namespace halfstep {

std::optional<Tensor> TwoPassOptimizer::step(const Closure& closure) {
  std::optional<Tensor> loss = evaluate(closure);
  const NoGrad off;
  adopt_changes();
  for (size_t g = 0; g < groups().size(); ++g) {
    Tensors keep;
    std::vector<ParamUpdate> params = updates(g, states(g), keep, number());
    if (params.empty()) continue;
    if (needs_two_passes(g)) {
      run_two_passes(g, params);
    } else {
      // A schedule moves the momentum of the parameters with two passes; the others keep that of their options.
      const UpdateRule only = rule(g, last_known_lr(g));
      StepControl one_pass = control(g, /*whole=*/true, /*clips=*/true);
      one_pass.momentum = nullptr;
      backend_for(keep.front().device()).update(params, only, one_pass);
    }
    finish(g);
  }
  run_followers();
  return loss;
}

// Updates the parameters of a group, one after the other. params: of those that have a gradient.
void TwoPassOptimizer::run_two_passes(size_t group, std::vector<ParamUpdate>& params) {
  const std::vector<Tensor>& tensors = groups()[group].params;
  const Device device = tensors.front().device();
  Backend& backend = backend_for(device);
  const size_t state_count = states(group).size();
  const UpdateRule first = rule(group, last_known_lr(group));
  const Autocast exact(device, DType::bf16, false);
  const MemoryScope tag(MemoryTag::workspace);
  const StepControl first_pass = control(group, /*whole=*/false, /*clips=*/true);
  StepControl second_pass = first_pass;  // the direction is neither scaled nor clipped
  second_pass.grad_scale = second_pass.grad_norm = nullptr, second_pass.write_back = false;
  size_t next = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& p = tensors[i];
    if (!p.raw_grad().defined()) continue;
    ParamUpdate& u = params[next++];
    if (!has_part(first_param(group) + i)) {  // another rank's: only its step is counted
      backend.update({&u, 1}, first, first_pass);
      continue;
    }
    const Tensor result = Tensor::empty(
        p.shape(), {.dtype = p.dtype() == DType::f64 ? DType::f64 : DType::f32, .device = device, .format = p.format()});
    u.state[state_count] = result.view();
    backend.update({&u, 1}, first, first_pass);
    const Direction d = compute_direction(group, p.detach(), result);
    const ParamUpdate taken{.param = u.param,
                            .grad = d.direction.view(),
                            .state = {},
                            .shadow = u.shadow,
                            .step = nullptr,
                            .number = d.number.defined() ? d.number.data_ptr<float>() : nullptr};
    backend.update({&taken, 1}, apply_rule(group, last_known_lr(group)), second_pass);
  }
}

HALFSTEP_OPTIONS(LAMBOptions, option("lr", &O::lr, "learning rate").at_least(0),
                 option("betas", &O::betas, "decay rates of the two moments").at_least(0).under(1),
                 option("eps", &O::eps, "added to the denominator").at_least(0),
                 option("weight_decay", &O::weight_decay, "weight decay, a part of the direction").at_least(0),
                 option("always_adapt", &O::always_adapt, "scale the step by the tensor's norm also without weight decay"),
                 option("maximize", &O::maximize, "climb instead of descend"))

UpdateRule LAMB::rule(size_t group, double lr) const {
  const LAMBOptions o = options_with(group, lr);
  return math::LambRule{
      .lr = o.lr, .beta1 = o.betas[0], .beta2 = o.betas[1], .eps = o.eps, .weight_decay = o.weight_decay, .maximize = o.maximize};
}
math::ApplyRule LAMB::apply_rule(size_t group, double lr) const {
  const LAMBOptions o = options_with(group, lr);
  const bool adapts = o.always_adapt || o.weight_decay != 0;
  return {.lr = lr, .rate = adapts ? math::ApplyRule::Rate::lr_times_number : math::ApplyRule::Rate::lr};
}
TwoPassOptimizer::Direction LAMB::compute_direction(size_t, const Tensor& param, Tensor result) {
  const auto norm_of = [](const Tensor& t) {
    const Tensor out = zeros({}, {.device = t.device()});
    const TensorView view = t.view();
    backend_for(t.device()).norm({&view, 1}, 2, out.data_ptr<float>());
    return out;
  };
  const Tensor weights = norm_of(param), direction = norm_of(result);
  // Use 1 where one of them is 0.
  const Tensor ratio = where((weights * direction).gt(0), weights / direction, ones_like(weights));
  return {std::move(result), ratio};
}

HALFSTEP_OPTIONS(MuonOptions, option("lr", &O::lr, "learning rate").at_least(0),
                 option("weight_decay", &O::weight_decay, "weight decay, apart from the gradient").at_least(0),
                 option("momentum", &O::momentum, "share of the last step that is kept").at_least(0).under(1),
                 option("nesterov", &O::nesterov, "look one step ahead"),
                 option("ns_coefficients", &O::ns_coefficients, "of the polynomial of a Newton-Schulz step"),
                 option("eps", &O::eps, "lower bound of the norm that a matrix is divided by").above(0),
                 option("ns_steps", &O::ns_steps, "Newton-Schulz steps").at_least(1).under(100),
                 option("adjust_lr_fn", &O::adjust_lr_fn, "how the rate depends on the shape of a matrix")
                     .one_of({"original", "match_rms_adamw", "spectral_unclamped"}),
                 option("matrices", &O::matrices, "false: AdamW for all parameters of the group"),
                 option("adamw_lr", &O::adamw_lr, "learning rate of the parameters that AdamW updates; 0: lr").at_least(0),
                 option("adamw_betas", &O::adamw_betas, "its betas").at_least(0).under(1),
                 option("adamw_eps", &O::adamw_eps, "its eps").at_least(0))
void MuonOptions::check_change(const MuonOptions& before) const {
  halfstep::check<ValueError>(matrices == before.matrices && adamw_lr == before.adamw_lr, kName,
                              "matrices and adamw_lr of a group cannot change: they decided which parameters are in it",
                              Help{"write lr of the group that AdamW updates"});
}

namespace {

// Splits each group into its matrices and, after them, the parameters for AdamW.
std::vector<ParamGroup> split(std::vector<ParamGroup> groups, const MuonOptions& shared) {
  std::vector<ParamGroup> out;
  for (ParamGroup& group : groups) {
    const MuonOptions* const own = std::any_cast<MuonOptions>(&group.options);
    if (group.options.has_value() && !own) return groups;  // the constructor refuses options of another type
    MuonOptions options = own ? *own : shared;
    const bool sorts = options.matrices;
    ParamGroup matrices = group, rest = group;
    matrices.params.clear(), rest.params.clear();
    for (Tensor& p : group.params) (sorts && p.defined() && p.dim() >= 2 ? matrices : rest).params.push_back(std::move(p));
    matrices.options = options;
    options.matrices = false;
    rest.options = options;
    if (options.adamw_lr != 0) rest.lr = options.adamw_lr;
    if (!matrices.params.empty()) out.push_back(std::move(matrices));
    if (!rest.params.empty()) out.push_back(std::move(rest));
  }
  return out;
}

}  // namespace

Muon::Muon(std::vector<Tensor> params, const MuonOptions& options)
    : Muon(std::vector<ParamGroup>{{.params = std::move(params)}}, options) {}
Muon::Muon(std::vector<ParamGroup> groups, const MuonOptions& options) : WithOptions(split(std::move(groups), options), options) {}
void Muon::add_param_group(ParamGroup group) {
  for (ParamGroup& part : split({std::move(group)}, shared())) WithOptions::add_param_group(std::move(part));
}

UpdateRule Muon::rule(size_t group, double lr) const {
  const MuonOptions o = options_with(group, lr);
  if (o.matrices) return math::MuonRule{.lr = lr, .momentum = o.momentum, .nesterov = o.nesterov};
  return math::AdamRule{.lr = lr,
                        .beta1 = o.adamw_betas[0],
                        .beta2 = o.adamw_betas[1],
                        .eps = o.adamw_eps,
                        .weight_decay = o.weight_decay,
                        .decoupled = true};
}
std::vector<std::string> Muon::states(size_t group) const {
  if (needs_two_passes(group)) return {"momentum_buffer"};
  return {"exp_avg", "exp_avg_sq"};
}
math::ApplyRule Muon::apply_rule(size_t group, double lr) const {
  return {.lr = lr, .weight_decay = options_with(group, lr).weight_decay, .rate = math::ApplyRule::Rate::lr_times_number};
}
TwoPassOptimizer::Direction Muon::compute_direction(size_t group, const Tensor& param, Tensor result) {
  const MuonOptions& o = options_of(group);
  const int64_t rows = param.size(0), columns = rows > 0 ? param.numel() / rows : 0;
  Tensor x = result.to(DType::bf16).reshape({rows, columns});
  if (rows > columns) x = x.t();
  x = x / clamp(norm(x), o.eps, {});
  // A Newton-Schulz step: x = (c0 + c1 gram + c2 gram^2) x.
  for (int64_t i = 0; i < o.ns_steps; ++i) {
    const Tensor gram = matmul(x, x.t());
    x = addmm(x, addmm(gram, gram, gram, o.ns_coefficients[1], o.ns_coefficients[2]), x, o.ns_coefficients[0]);
  }
  if (rows > columns) x = x.t();
  const double height = double(rows), width = double(columns);
  const double ratio = o.adjust_lr_fn == "original"          ? std::sqrt(std::max(1.0, height / width))
                       : o.adjust_lr_fn == "match_rms_adamw" ? 0.2 * std::sqrt(std::max(height, width))
                                                             : std::sqrt(height / width);
  return {x.reshape(param.shape()).to(param.format()), full({}, ratio, {.device = param.device()})};
}

HALFSTEP_OPTIONS(AdafactorOptions, option("lr", &O::lr, "learning rate").at_least(0),
                 option("beta2_decay", &O::beta2_decay, "1 - beta2 is step^beta2_decay"),
                 option("eps", &O::eps, "least mean square of a gradient, and least size of a tensor's values").at_least(0),
                 option("d", &O::d, "clipping threshold for the root mean square of an update").at_least(1),
                 option("weight_decay", &O::weight_decay, "weight decay, apart from the gradient").at_least(0),
                 option("maximize", &O::maximize, "climb instead of descend"))
void AdafactorOptions::check(std::string_view name) const {
  halfstep::check<ValueError>(beta2_decay <= 0, name, "beta2_decay must be <= 0, got ", beta2_decay);
}

std::vector<std::string> Adafactor::state_names(size_t, const Tensor& param) const {
  if (param.dim() > 1) return {"step", "row_var", "col_var"};
  return {"step", "variance"};
}
std::optional<Optimizer::StateLayout> Adafactor::state_layout(const std::string& name, const Tensor& param) const {
  StateLayout layout = *Optimizer::state_layout(name, param);
  if (name == "row_var") layout.shape[size_t(param.dim() - 1)] = 1;
  if (name == "col_var") layout.shape[size_t(param.dim() - 2)] = 1;
  return layout;
}

namespace {

// Estimates the second moment of a gradient; for a matrix as the product of the means over its rows and columns. kept(name): a
// state; commit(state, value): sets its new value.
template <class Kept, class Commit>
Tensor second_moment(const Tensor& grad, const Tensor& weight, double eps, const Kept& kept, const Commit& commit) {
  if (grad.dim() <= 1) {
    const Tensor old = kept("variance"), now = lerp(old, square(grad), weight);
    commit(old, now);
    return now;
  }
  const auto moved = [&](const char* name, int dim) {
    const Tensor mean = square(norm(grad, 2, {dim}, true)) / double(grad.size(dim)), old = kept(name),
                 now = lerp(old, mean, weight);
    commit(old, now);
    return now;
  };
  const Tensor row = moved("row_var", -1), column = moved("col_var", -2);
  return matmul(row, column) / clamp(row.mean({-2}, true), eps, {});
}

// An update u and the rate r with which a parameter takes it: p = (1 - lr weight_decay) p - r u.
struct RatedUpdate {
  Tensor update, rate;  // like the parameter; 0-dim f32
};

// Computes step t of Adafactor, with w = t^beta2_decay and rms(x) = |x| / sqrt(elements):
//
//   row = lerp(row, means of g^2 over the columns, w), column alike;  v = row column / max(mean of row, eps0)
//   u = g / sqrt(max(v, eps0^2)),  r = max(eps1, rms(p)) min(lr, 1 / sqrt(t)) / max(1, rms(u) / d)
template <class Kept, class Commit>
RatedUpdate rated_update(const Tensor& p, const Tensor& grad, const Tensor& t, const Tensor& lr, const AdafactorOptions& o,
                         const Kept& kept, const Commit& commit) {
  const Tensor weight = pow(t, o.beta2_decay);
  const double elements = double(std::max<int64_t>(p.numel(), 1));
  const Tensor size = clamp(norm(p.to(grad.dtype())) / std::sqrt(elements), o.eps[1], {});
  const Tensor rate = size * minimum(lr, reciprocal(sqrt(t)));
  const Tensor variance = second_moment(grad, weight, o.eps[0], kept, commit);
  const Tensor update = (rsqrt(clamp(variance, o.eps[0] * o.eps[0], {})) * grad).to(p.format());
  const Tensor excess = clamp(norm(update) / (std::sqrt(elements) * o.d), 1.0, {});
  return {update, (rate / excess).to(DType::f32)};
}

}  // namespace

std::optional<Tensor> Adafactor::step(const Closure& closure) {
  std::optional<Tensor> loss = evaluate(closure);
  const NoGrad off;
  adopt_changes();
  const MemoryScope tag(MemoryTag::workspace);
  for (size_t g = 0; g < groups().size(); ++g) {
    const std::vector<Tensor>& params = groups()[g].params;
    if (gradients_of(params, /*contiguous=*/true, /*raw=*/true).empty()) continue;
    const Device device = params.front().device();
    const Autocast exact(device, DType::bf16, false);
    const AdafactorOptions o = options_with(g, last_known_lr(g));
    StepControl control = this->control(g, /*whole=*/false);
    const bool write_back = control.write_back;
    control.grad_scale = nullptr, control.write_back = false;  // handled by the pass below
    const AmpStep amp = this->checked_amp();
    const Tensor skips = amp.found_inf.defined() ? amp.found_inf.ne(0) : Tensor();
    const auto commit = [&](Tensor state, const Tensor& value) {
      state.copy_(skips.defined() ? where(skips, state, value.to(state.dtype())) : value);
    };
    const Tensor lr = device_lr(g);
    for (size_t i = 0; i < params.size(); ++i) {
      const Tensor p = params[i].detach(), raw = params[i].raw_grad();
      if (!raw.defined()) continue;
      const auto kept = [&](const std::string& name) {
        const StateLayout layout = *state_layout(name, p);
        return state(first_param(g) + i, name, layout.shape, layout.dtype);
      };
      if (!has_part(first_param(g) + i)) {  // another rank's: only its step is counted
        const Tensor step = kept("step");
        commit(step, step + 1);
        continue;
      }
      Tensor grad = raw.detach().to(p.dtype() == DType::f64 ? DType::f64 : DType::f32);
      if (amp.grad_scale.defined()) {
        grad = grad * reciprocal(amp.grad_scale);
        if (write_back) commit(raw.detach(), grad);
      }
      if (o.maximize) grad = -grad;
      const Tensor step = kept("step"), t = step + 1;
      const auto [update, rate] = rated_update(p, grad, t, lr, o, kept, commit);
      const Tensor shadow = autocast::shadow_of(params[i]);
      const ParamUpdate taken{.param = p.view(),
                              .grad = update.view(),
                              .state = {},
                              .shadow = shadow.defined() ? shadow.view() : TensorView{},
                              .step = nullptr,
                              .number = rate.data_ptr<float>()};
      backend_for(device).update(
          {&taken, 1}, math::ApplyRule{.lr = o.lr, .weight_decay = o.weight_decay, .rate = math::ApplyRule::Rate::number}, control);
      commit(step, t);
    }
    finish(g);
  }
  run_followers();
  return loss;
}

}  // namespace halfstep
