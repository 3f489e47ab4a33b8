#include "optim/optimizer.h"

#include <set>
#include <utility>

#include "amp/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "optim/gradients.h"

namespace halfstep {
namespace {

std::string describe_param(const Tensor& p, size_t index) {
  return p.label().empty() ? "parameter " + std::to_string(index) : "parameter " + std::to_string(index) + " (" + p.label() + ")";
}

void check_params(const std::vector<ParamGroup>& groups) {
  check<ValueError>(!groups.empty(), "optimizer", "needs at least one parameter, got an empty list");
  std::set<const TensorImpl*> seen;
  size_t index = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    check<ValueError>(!groups[g].params.empty(), "optimizer", "needs at least one parameter, got an empty list",
                      groups.size() > 1 ? " for group " + std::to_string(g) : "");
    for (const Tensor& p : groups[g].params) {
      check<ValueError>(p.defined(), "optimizer", "parameter ", index, " is undefined");
      const std::string who = describe_param(p, index++);
      check<ValueError>(p.is_leaf(), "optimizer", "can only optimize leaf tensors, ", who, " was computed by an operation",
                        Help{"pass the parameter itself, not a cast, view or result of it"});
      check<DTypeError>(p.is_floating_point(), "optimizer", "parameters must be floating point, ", who, " is ", p.dtype());
      check<ShapeError>(p.is_contiguous(), "optimizer", "parameters must be contiguous, ", who, " has shape ", p.shape(),
                        " and strides ", p.strides(), Help{"use p.contiguous() as the parameter"});
      check<DeviceError>(p.device() == groups[g].params.front().device(), "optimizer",
                         "parameters of a group must be on one device, ", who, " is on ", p.device(), ", the first on ",
                         groups[g].params.front().device());
      check<ValueError>(seen.insert(p.impl()).second, "optimizer", "each parameter may appear once, ", who, " appears again");
    }
  }
}

DType state_dtype(const Tensor& param) { return param.dtype() == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace

Optimizer::Optimizer(std::vector<ParamGroup> groups, double lr) : groups_(std::move(groups)) {
  check_params(groups_);
  size_t count = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const double rate = groups_[g].lr.value_or(lr);
    check<ValueError>(rate >= 0, "optimizer", "lr must be >= 0, got ", rate);
    const double decay = groups_[g].weight_decay.value_or(0);
    check<ValueError>(decay >= 0, "optimizer", "weight_decay must be >= 0, got ", decay);
    lr_.push_back(rate);
    first_param_.push_back(count);
    count += groups_[g].params.size();
  }
  initial_lr_ = lr_;
  state_.resize(count);
}

void Optimizer::zero_grad() {
  for (const ParamGroup& group : groups_) {
    for (const Tensor& p : group.params) p.zero_grad();
  }
}

double Optimizer::lr(size_t group) const {
  if (settle_) settle_();
  check<IndexError>(group < lr_.size(), "optimizer", "group must be below ", lr_.size(), ", got ", group);
  return lr_[group];
}

void Optimizer::set_lr(double lr, size_t group) {
  check<IndexError>(group < lr_.size(), "optimizer", "group must be below ", lr_.size(), ", got ", group);
  check<ValueError>(lr >= 0, "optimizer", "lr must be >= 0, got ", lr);
  if (settle_) settle_();
  lr_[group] = lr;
}

double Optimizer::initial_lr(size_t group) const {
  check<IndexError>(group < lr_.size(), "optimizer", "group must be below ", lr_.size(), ", got ", group);
  return initial_lr_[group];
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> out;
  for (const ParamGroup& group : groups_) out.insert(out.end(), group.params.begin(), group.params.end());
  return out;
}

Tensor& Optimizer::state(size_t param, const std::string& name, const Shape& shape, DType dtype) {
  check<IndexError>(param < state_.size(), "optimizer", "parameter must be below ", state_.size(), ", got ", param,
                    Help{"build a new optimizer to add parameters"});
  size_t group = groups_.size() - 1;
  while (first_param_[group] > param) --group;
  const Tensor& p = groups_[group].params[param - first_param_[group]];
  Tensor& t = state_[param][name];
  if (!t.defined()) {
    MemoryScope tag(MemoryTag::optimizer);
    t = zeros(shape, {.dtype = dtype, .device = p.device()});
    return t;
  }
  check<ValueError>(t.dtype() == dtype && t.device() == p.device(), "optimizer", name, " of ", describe_param(p, param), " is ",
                    t.dtype(), " on ", t.device(), " but the parameter is ", p.dtype(), " on ", p.device(),
                    Help{"convert and move the module before its optimizer takes a step"});
  return t;
}

std::vector<ParamUpdate> Optimizer::updates(size_t group, const std::vector<std::string>& states, Tensors& keep) {
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
    check<ShapeError>(grad.shape() == p.shape(), "optimizer", "the gradient of ", describe_param(p, index), " must be ", p.shape(),
                      ", got ", grad.shape());
    ParamUpdate u{};
    u.param = hold(p);
    u.grad = hold(grad);
    for (size_t k = 0; k < states.size(); ++k) u.state[k] = hold(state(index, states[k], p.shape(), state_dtype(p)));
    const Tensor shadow = autocast::shadow_of(p);
    if (shadow.defined()) u.shadow = hold(shadow);
    u.step = static_cast<float*>(hold(state(index, "step", {}, DType::f32)).data);
    out.push_back(u);
  }
  return out;
}

AmpStep& Optimizer::amp() {
  if (check_) std::exchange(check_, nullptr)();
  return amp_;
}

void Optimizer::begin_amp(AmpStep amp, std::function<void()> check, const math::StepTail& tail) {
  amp_ = std::move(amp);
  check_ = std::move(check);
  tail_ = tail;
}

Optimizer::Left Optimizer::end_amp() {
  const Left left{std::exchange(check_, nullptr), tail_.has_value()};
  amp_ = {};
  tail_.reset();
  return left;
}

StepControl Optimizer::control(size_t group) {
  StepControl c;
  if (groups_.size() == 1) {
    c.check = std::exchange(check_, nullptr) != nullptr;
    c.tail = std::exchange(tail_, std::nullopt).value_or(math::StepTail());
  }
  const AmpStep& step = amp();
  if (step.found_inf.defined()) c.found_inf = step.found_inf.data<float>();
  if (step.grad_scale.defined()) c.grad_scale = step.grad_scale.data<float>();
  c.write_back = step.grad_scale.defined() && keeps_unscaled_;
  if (rates_.defined()) c.lr = rates_.data<double>() + group;
  return c;
}

void Optimizer::finish(size_t group) {
  for (const Tensor& p : groups_[group].params) {
    if (!p.raw_grad().defined()) continue;
    // Asked again before the version grows: the same answer the kernel's pass got.
    const bool shadowed = autocast::shadow_of(p).defined();
    p.bump_version();
    if (shadowed) autocast::shadow_is_current(p);
    if (amp_.grad_scale.defined()) p.raw_grad().bump_version();
  }
}

std::optional<Tensor> Optimizer::evaluate(const Closure& closure) {
  if (!closure) return {};
  EnableGrad on;
  return closure();
}

std::optional<Tensor> FusedOptimizer::step(const Closure& closure) {
  std::optional<Tensor> loss = evaluate(closure);
  NoGrad off;
  for (size_t g = 0; g < groups().size(); ++g) {
    Tensors keep;
    const std::vector<ParamUpdate> params = updates(g, states(), keep);
    if (params.empty()) continue;
    backend_for(keep.front().device()).update(params, rule(last_known_lr(g), groups()[g].weight_decay), control(g));
    finish(g);
  }
  return loss;
}

std::vector<std::string> FusedOptimizer::state_names() const {
  std::vector<std::string> names = states();
  names.insert(names.begin(), "step");
  return names;
}

}  // namespace halfstep
