// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

#include <algorithm>
#include <atomic>
#include <ostream>
#include <set>
#include <utility>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/autograd/scaled_backward.h"
#include "framework/ops/ops.h"
#include "optim/gradients.h"

namespace halfstep {
namespace {

// Throws ValueError unless a rate, a weight decay or a momentum is >= 0.
void check_rate(const char* name, double value) {
  check<ValueError>(value >= 0, "optimizer", name, " must be >= 0, got ", value);
}

// Text for a message, built only if the message is: a step must not build texts.
struct LazyDescription {
  const Tensor& param;
  size_t index;
};
std::ostream& operator<<(std::ostream& out, const LazyDescription& d) {
  out << "parameter " << d.index;
  return d.param.label().empty() ? out : out << " (" << d.param.label() << ")";
}

DType state_dtype(const Tensor& param) { return param.dtype() == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace

Optimizer::Optimizer(std::vector<ParamGroup> groups, double lr) : default_lr_(lr) {
  static std::atomic<uint64_t> next{1};
  id_ = next++;
  check<ValueError>(!groups.empty(), "optimizer", "needs at least one parameter, got an empty list");
  for (ParamGroup& group : groups) append_group(std::move(group), groups.size() > 1);
}

void Optimizer::add_param_group(ParamGroup group) {
  check<ValueError>(!rates_.defined(), "optimizer",
                    "a group cannot be added while a TrainStep keeps the learning rates on the device",
                    Help{"add it before the TrainStep is made"});
  append_group(std::move(group), true);
  for (Follower* follower : followers_) follower->group_added();
}

void Optimizer::append_group(ParamGroup group, bool one_of_several) {
  check<ValueError>(!group.params.empty(), "optimizer", "needs at least one parameter, got an empty list",
                    one_of_several ? " for group " + std::to_string(groups_.size()) : "");
  std::set<const TensorImpl*> seen;
  for (const Tensor& p : params_) seen.insert(p.impl());
  size_t index = state_.size();
  for (const Tensor& p : group.params) {
    check<ValueError>(p.defined(), "optimizer", "parameter ", index, " is undefined");
    const LazyDescription who{p, index++};
    check<ValueError>(p.is_leaf(), "optimizer", "can only optimize leaf tensors, ", who, " was computed by an operation",
                      Help{"pass the parameter itself, not a cast, view or result of it"});
    check<DTypeError>(p.is_floating_point(), "optimizer", "parameters must be floating point, ", who, " is ", p.dtype());
    check<ShapeError>(p.is_contiguous(p.format()), "optimizer", "parameters must be contiguous, ", who, " has shape ", p.shape(),
                      " and strides ", p.strides(), Help{"use p.detach().contiguous().set_requires_grad() as the parameter"});
    check<DeviceError>(p.device() == group.params.front().device(), "optimizer",
                       "parameters of a group must be on one device, ", who, " is on ", p.device(), ", the first on ",
                       group.params.front().device());
    check<ValueError>(seen.insert(p.impl()).second, "optimizer", "each parameter may appear once, ", who, " appears again");
  }
  const double rate = group.lr.value_or(default_lr_), decay = group.weight_decay.value_or(0);
  check_rate("lr", rate);
  check_rate("weight_decay", decay);
  lr_.push_back(rate);
  initial_lr_.push_back(rate);
  written_.push_back(false);
  first_param_.push_back(state_.size());
  state_.resize(index);
  params_.insert(params_.end(), group.params.begin(), group.params.end());
  group.lr = rate;
  groups_.push_back(std::move(group));
  if (shards_) shards_->add(groups_.back().params);
}

std::span<ParamGroup> Optimizer::param_groups() {
  if (sync_host_) sync_host_();
  return groups_;
}
std::span<const ParamGroup> Optimizer::param_groups() const {
  if (sync_host_) sync_host_();
  return groups_;
}

void Optimizer::check_params() const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<Tensor>& now = groups_[g].params;
    const size_t first = first_param_[g], end = g + 1 < groups_.size() ? first_param_[g + 1] : params_.size();
    bool same = now.size() == end - first;
    for (size_t i = 0; same && i < now.size(); ++i) same = now[i].same(params_[first + i]);
    check<ValueError>(same, "optimizer", "the parameters of group ", g, " were exchanged, but states belong to them",
                      Help{"use add_param_group for more parameters, and a new optimizer for others"});
  }
  for (const Tensor& p : params_) {
    const auto& meta = p.impl()->autograd;
    check<ValueError>(!meta || !meta->replaced, "optimizer", '"', p.label(),
                      "\" was replaced in its module, so updates of the former one have no effect",
                      Help{"replace parameters and layers before the optimizer is made, or make a new one"});
  }
}

void Optimizer::adopt_changes() {
  check_unscaled();
  adopt_options();
}

void Optimizer::check_unscaled() const {
  if (amp_.grad_scale.defined()) return;
  for (const Tensor& p : params_) {
    const auto& meta = p.impl()->autograd;
    if (!meta || !meta->grad.defined()) continue;
    check_one_scale(p);
    if (!meta->scaled || unmark_zeros(p)) continue;
    fail<AmpError>("optimizer", "these gradients are multiplied by the loss scale, got a step of ", describe(),
                   " without the scaler",
                   Help{"call scaler.step(opt) in place of opt.step(), or, if the program has divided them itself, "
                        "p.set_grad(p.grad()) for each parameter before it"});
  }
}

void Optimizer::adopt_options() {
  check_params();
  check_own_values("optimizer");
  for (size_t g = 0; g < groups_.size(); ++g) {
    const double rate = last_known_lr(g);
    check_rate("lr", rate);
    if (rate != lr_[g]) written_[g] = true;
    put_lr(rate, g);
    adopt(g);
  }
}

std::vector<double> Optimizer::recorded_options() {
  adopt_options();
  std::vector<double> out;
  for (const ParamGroup& group : groups_) out.push_back(group.weight_decay.value_or(-1));
  return out;
}

// Returns the rate that changed, of the places that have it.
double Optimizer::last_known_lr(size_t group) const {
  const std::optional<double>& direct = groups_[group].lr;
  if (direct && *direct != lr_[group]) return *direct;
  const double* const option = const_cast<Optimizer*>(this)->lr_option(group);
  return option ? *option : lr_[group];
}

void Optimizer::put_lr(double lr, size_t group) {
  groups_[group].lr = lr_[group] = lr;
  if (double* const option = lr_option(group)) *option = lr;
}

void Optimizer::schedule_lr(double lr, size_t group) {
  check_rate("lr", lr);
  put_lr(lr, group);
  written_[group] = false;
}

void Optimizer::begin_schedule() {
  adopt_options();
  // As in PyTorch, the first schedule takes the rates for the initial ones. Later ones find what was written in Schedule::start.
  for (size_t g = 0; g < groups_.size() && !scheduled_; ++g) {
    if (written_[g]) initial_lr_[g] = lr_[g];
    written_[g] = false;
  }
  scheduled_ = true;
}

std::string Optimizer::Follower::free_name(const std::string& name) const {
  const auto taken = [&](const std::string& wanted) {
    return std::any_of(optimizer().followers_.begin(), optimizer().followers_.end(), [&](const Follower* other) {
      if (other == this) return false;
      const std::vector<std::string> names = other->state_names();
      return std::find(names.begin(), names.end(), wanted) != names.end();
    });
  };
  std::string out = name;
  for (int i = 2; taken(out); ++i) out = name + "_" + std::to_string(i);
  return out;
}

Tensor Optimizer::own_value(const Tensor& param) const {
  for (const Follower* f : followers_) {
    if (!f->holds_parameters()) continue;
    for (size_t i = 0; i < params_.size(); ++i) {
      if (!params_[i].same(param)) continue;
      if (const Tensor own = f->own_value(i); own.defined()) return own;
    }
  }
  return param;
}

void Optimizer::check_own_values(const char* where) const {
  for (const Follower* f : followers_) {
    check<ValueError>(!f->holds_parameters(), where, "the parameters hold those of ", f->describe(), " now, not their own values",
                      Help{"end the WeightAverage::Scope first"});
  }
}

OptionValues Optimizer::option_values(size_t group) const {
  const std::optional<double>& decay = groups_[group].weight_decay;
  return decay ? OptionValues{{"weight_decay", std::vector<double>{*decay}}} : OptionValues{};
}

void Optimizer::set_option_values(size_t group, const OptionValues& values) {
  for (const auto& [name, value] : values) {
    const auto* const number = std::get_if<std::vector<double>>(&value);
    check<ValueError>(name == "weight_decay" && number && number->size() == 1 && number->front() >= 0, "optimizer", "the option \"",
                      name, "\" of a state has no place in ", describe());
  }
  if (values.contains("weight_decay")) groups_[group].weight_decay = std::get<0>(values.at("weight_decay")).front();
}

void Optimizer::zero_grad() {
  for (const Tensor& p : params_) p.zero_grad();
}

double Optimizer::lr(size_t group) const {
  if (sync_host_) sync_host_();
  check<IndexError>(group < lr_.size(), "optimizer", "group must be below ", lr_.size(), ", got ", group);
  return last_known_lr(group);
}

void Optimizer::set_lr(double lr) {
  for (size_t g = 0; g < lr_.size(); ++g) set_lr(lr, g);
}

void Optimizer::set_lr(double lr, size_t group) {
  check<IndexError>(group < lr_.size(), "optimizer", "group must be below ", lr_.size(), ", got ", group);
  check_rate("lr", lr);
  if (sync_host_) sync_host_();
  put_lr(lr, group);
  written_[group] = true;
}

double Optimizer::initial_lr(size_t group) const {
  check<IndexError>(group < lr_.size(), "optimizer", "group must be below ", lr_.size(), ", got ", group);
  return initial_lr_[group];
}

double Optimizer::momentum(size_t group) const {
  if (sync_host_) sync_host_();
  check<IndexError>(group < lr_.size(), "optimizer", "group must be below ", lr_.size(), ", got ", group);
  const double* at = momentum_of(group);
  check<ValueError>(at, "optimizer", describe(), " has no momentum");
  return *at;
}

void Optimizer::set_momentum(double momentum, size_t group) {
  this->momentum(group);  // throws if there is none
  check_rate("momentum", momentum);
  *const_cast<double*>(momentum_of(group)) = momentum;  // an option of this object, which is not const
}

std::vector<Tensor> Optimizer::parameters() const { return params_; }

Tensor& Optimizer::state(size_t param, const std::string& name, const Shape& shape, DType dtype) {
  check<IndexError>(param < state_.size(), "optimizer", "parameter must be below ", state_.size(), ", got ", param,
                    Help{"use add_param_group to add parameters"});
  size_t group = groups_.size() - 1;
  while (first_param_[group] > param) --group;
  const Tensor& p = groups_[group].params[param - first_param_[group]];
  Tensor& t = state_[param][name];
  if (!t.defined()) {
    MemoryScope tag(MemoryTag::optimizer);
    t = zeros(shape, {.dtype = dtype, .device = p.device(), .format = shape == p.shape() ? p.format() : MemoryFormat::contiguous});
    return t;
  }
  check<ValueError>(t.dtype() == dtype && t.device() == p.device(), "optimizer", name, " of ", LazyDescription{p, param}, " is ",
                    t.dtype(), " on ", t.device(), " but the parameter is ", p.dtype(), " on ", p.device(),
                    Help{"convert and move the module before its optimizer takes a step"});
  // Restore the layout: the state was loaded, or the parameter's layout has changed.
  if (t.shape() == p.shape() && !t.is_contiguous(p.format())) {
    MemoryScope tag(MemoryTag::optimizer);
    t = t.clone(p.format());
  }
  return t;
}

std::vector<ParamUpdate> Optimizer::updates(size_t group, const std::vector<std::string>& states, Tensors& keep,
                                            const char* number) {
  const std::vector<Tensor>& params = groups_[group].params;
  gradients_of(params, /*contiguous=*/true, /*raw=*/true);
  std::vector<ParamUpdate> out;
  out.reserve(params.size());
  const auto hold = [&](const Tensor& t) {
    keep.push_back(t);
    return t.view();
  };
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& p = params[i];
    const Tensor& grad = p.raw_grad();
    if (!grad.defined()) continue;
    const size_t index = first_param_[group] + i;
    check<ShapeError>(grad.shape() == p.shape(), "optimizer", "the gradient of ", LazyDescription{p, index}, " must be ", p.shape(),
                      ", got ", grad.shape());
    if (shards_) shards_->check_format(index, p);
    const auto part = [&](const Tensor& t) { return shards_ ? shards_->part(index, t) : t; };
    ParamUpdate u{};
    const Tensor own = part(p);
    u.param = hold(own);
    u.grad = hold(part(grad));
    // A parameter of another rank has no elements here, but the kernel counts its step.
    for (size_t k = 0; k < states.size() && has_part(index); ++k)
      u.state[k] = hold(state(index, states[k], own.shape(), state_dtype(p)));
    const Tensor shadow = shards_ ? Tensor() : autocast::shadow_of(p);  // sharded: cast once the whole parameter is gathered
    if (shadow.defined()) u.shadow = hold(shadow);
    u.step = static_cast<float*>(hold(state(index, "step", {}, DType::f32)).data);
    if (number) u.number = static_cast<float*>(hold(state(index, number, {}, DType::f32)).data);
    out.push_back(u);
  }
  return out;
}

AmpStep& Optimizer::checked_amp() {
  tested_amp();
  if (amp_.clip.norm.defined()) clip_in_memory();
  return amp_;
}

const AmpStep& Optimizer::tested_amp() {
  if (test_gradients_) std::exchange(test_gradients_, nullptr)();
  return amp_;
}

void Optimizer::clip_in_memory() {
  const NoGrad off;
  const MemoryScope tag(MemoryTag::workspace);
  const Tensors grads = gradients_of(params_);
  const NormClip clip = std::exchange(amp_.clip, {});
  Backend& backend = backend_for(clip.norm.device());
  if (const Tensor scale = std::exchange(amp_.grad_scale, {}); scale.defined()) {
    const Tensor found = zeros({}, {.device = scale.device()});  // already checked
    backend.unscale(views_of(grads), scale.data_ptr<float>(), found.data_ptr<float>());
    mark_unscaled(params_);
  }
  backend.clip(views_of(grads), clip.norm.data_ptr<float>(), clip.max_norm);
  for (const Tensor& g : grads) g.bump_version();
}

void Optimizer::begin_amp(AmpStep amp, std::function<void()> test_gradients, const math::StepTail& tail) {
  amp_ = std::move(amp);
  test_gradients_ = std::move(test_gradients);
  tail_ = tail;
}

Optimizer::RemainingWork Optimizer::end_amp() {
  const RemainingWork left{std::exchange(test_gradients_, nullptr), tail_.has_value()};
  amp_ = {};
  tail_.reset();
  return left;
}

StepControl Optimizer::control(size_t group, bool whole, bool clips) {
  StepControl c;
  if (whole && groups_.size() == 1) {
    // The kernel of a sharded optimizer sees only some of the gradients.
    c.test_gradients = !shards_ && std::exchange(test_gradients_, nullptr) != nullptr;
    if (followers_.empty()) c.tail = std::exchange(tail_, std::nullopt).value_or(math::StepTail());  // this kernel ends the step
  }
  const AmpStep& step = clips ? tested_amp() : checked_amp();
  if (step.found_inf.defined()) c.found_inf = step.found_inf.data_ptr<float>();
  if (step.grad_scale.defined()) c.grad_scale = step.grad_scale.data_ptr<float>();
  if (step.clip.norm.defined()) c.grad_norm = step.clip.norm.data_ptr<float>(), c.max_norm = step.clip.max_norm;
  c.write_back = step.grad_scale.defined() && keeps_unscaled_ && !shards_;  // else finish() unscales the gradients
  if (rates_.defined()) {
    c.lr = rates_.data_ptr<double>() + group;
    if (device_has_momentum()) c.momentum = c.lr + groups_.size();
  }
  return c;
}

Tensor Optimizer::device_lr(size_t group) const {
  if (rates_.defined()) return rates_.select(0, int64_t(group)).to(DType::f32);
  return full({}, last_known_lr(group), {.device = groups_[group].params.front().device()});
}

void Optimizer::finish(size_t group) {
  if (shards_ && amp_.grad_scale.defined() && keeps_unscaled_) unscale_all(group);
  for (const Tensor& p : groups_[group].params) {
    if (!p.raw_grad().defined()) continue;
    // Read the shadow before the version grows: a shadow of an older version is undefined.
    const bool shadowed = autocast::shadow_of(p).defined();
    p.bump_version();
    if (shadowed) autocast::mark_shadow_current(p);
    if (amp_.grad_scale.defined()) p.raw_grad().bump_version();
  }
}

std::optional<Tensor> Optimizer::evaluate(const Closure& closure) {
  if (!closure) return {};
  EnableGrad on;
  return closure();
}

std::optional<Optimizer::StateLayout> Optimizer::state_layout(const std::string& name, const Tensor& param) const {
  return is_number(name) ? StateLayout{{}, DType::f32} : StateLayout{param.shape(), state_dtype(param)};
}

const Tensor* Optimizer::find_state(size_t param, const std::string& name) const {
  const auto& states = state_.at(param);
  const auto at = states.find(name);
  return at == states.end() ? nullptr : &at->second;
}

void Optimizer::run_followers() {
  if (shards_) shards_->gather(params_);
  for (Follower* follower : followers_) follower->stepped(tested_amp());
}

std::optional<Tensor> FusedOptimizer::step(const Closure& closure) {
  std::optional<Tensor> loss = evaluate(closure);
  NoGrad off;
  adopt_changes();
  for (size_t g = 0; g < groups().size(); ++g) {
    Tensors keep;
    const std::vector<ParamUpdate> params = updates(g, states(g), keep, number());
    if (params.empty()) continue;
    backend_for(keep.front().device()).update(params, rule(g, last_known_lr(g)),
                                              control(g, /*whole=*/true, /*clips=*/true));
    finish(g);
  }
  run_followers();
  return loss;
}

std::vector<std::string> FusedOptimizer::state_names(size_t group, const Tensor&) const {
  std::vector<std::string> names = states(group);
  names.insert(names.begin(), "step");
  if (number()) names.push_back(number());
  if (derived_name()) names.push_back(derived_name());
  return names;
}

bool FusedOptimizer::is_number(const std::string& name) const {
  return (number() && name == number()) || (derived_name() && name == derived_name()) || Optimizer::is_number(name);
}

}  // namespace halfstep
