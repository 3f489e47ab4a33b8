// SPDX-License-Identifier: Apache-2.0
#include "torch/optim/optim.h"

#include "optim/lbfgs.h"
#include "optim/optimizers.h"
#include "torch/autograd/autograd.h"
#include "torch/serialize/archive.h"

namespace torch::optim {

OptimizerParamGroup& OptimizerParamGroup::operator=(const OptimizerParamGroup& o) {
  params_ = o.params_;
  options_ = o.options_ ? o.options_->clone() : nullptr;
  return *this;
}
const OptimizerOptions& OptimizerParamGroup::options() const {
  TORCH_CHECK(has_options(), "the group of parameters has no options yet: an optimizer gives it some");
  return *options_;
}
OptimizerOptions& OptimizerParamGroup::options() {
  return const_cast<OptimizerOptions&>(static_cast<const OptimizerParamGroup*>(this)->options());
}

Optimizer::Optimizer(std::vector<OptimizerParamGroup> groups, std::unique_ptr<OptimizerOptions> defaults)
    : defaults_(std::move(defaults)) {
  for (const auto& g : groups) put(g);
}
void Optimizer::add_param_group(const OptimizerParamGroup& group) { put(group); }
void Optimizer::put(OptimizerParamGroup group) {
  for (const Tensor& p : group.params()) TORCH_CHECK(p.is_leaf(), "can't optimize a non-leaf Tensor");
  for (const auto& other : groups_) {
    for (const Tensor& p : other.params()) {
      for (const Tensor& q : group.params()) TORCH_CHECK(!p.is_same(q), "some parameters appear in more than one parameter group");
    }
  }
  if (!group.has_options()) group.set_options(defaults_->clone());
  groups_.push_back(std::move(group));
}
void Optimizer::zero_grad(bool set_to_none) {
  for (const auto& g : groups_) {
    for (const Tensor& p : g.params()) ::torch::detail::zero_grad(p, set_to_none);
  }
}
void Optimizer::add_parameters(const std::vector<Tensor>& parameters) {
  TORCH_WARN("Optimizer::add_parameters() will be removed in PyTorch 1.6");
  auto& first = groups_.at(0).params();
  first.insert(first.end(), parameters.begin(), parameters.end());
}
const std::vector<Tensor>& Optimizer::parameters() const {
  TORCH_WARN("Optimizer::parameters() will be removed in PyTorch 1.6");
  return groups_.at(0).params();
}
std::vector<Tensor>& Optimizer::parameters() {
  return const_cast<std::vector<Tensor>&>(static_cast<const Optimizer*>(this)->parameters());
}
size_t Optimizer::size() const {
  TORCH_WARN("Optimizer::size() will be removed in PyTorch 1.6");
  size_t n = 0;
  for (const auto& g : groups_) n += g.params().size();
  return n;
}
void Optimizer::save(serialize::OutputArchive& archive) const {
  auto* own = const_cast<Optimizer*>(this)->halfstep();
  TORCH_CHECK(own, "save: an optimizer that is not one of torch::optim must override save and load");
  for (const auto& [name, t] : own->state_dict()) archive.write(name, Tensor(t));
}
void Optimizer::load(serialize::InputArchive& archive) {
  auto* own = halfstep();
  TORCH_CHECK(own, "load: an optimizer that is not one of torch::optim must override save and load");
  own->load_state_dict(archive.tensors());
}

void LRScheduler::step() {
  const std::vector<double> rates = get_lrs();
  TORCH_CHECK(rates.size() == optimizer_.param_groups().size(), "Number of learning rates not equal to the number of param groups");
  for (size_t i = 0; i < rates.size(); ++i) optimizer_.param_groups()[i].options().set_lr(rates[i]);
  ++step_count_;
}
std::vector<double> LRScheduler::get_current_lrs() const {
  std::vector<double> out;
  for (const auto& g : optimizer_.param_groups()) out.push_back(g.options().get_lr());
  return out;
}
std::vector<double> StepLR::get_lrs() {
  std::vector<double> out = get_current_lrs();
  if (step_count_ == 0 || step_count_ % step_size_ != 0) return out;
  for (double& lr : out) lr *= gamma_;
  return out;
}

ReduceLROnPlateauScheduler::ReduceLROnPlateauScheduler(Optimizer& optimizer, SchedulerMode mode, float factor, int patience,
                                                       double threshold, ThresholdMode threshold_mode, int cooldown,
                                                       const std::vector<float>& min_lr, double eps, bool verbose)
    : optimizer_(optimizer),
      mode_(mode),
      factor_(factor),
      patience_(patience),
      threshold_(threshold),
      threshold_mode_(threshold_mode),
      cooldown_(cooldown),
      min_lrs_(min_lr),
      eps_(eps),
      verbose_(verbose),
      best_(mode == min ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity()) {
  TORCH_CHECK(factor < 1.0f, "Factor should be < 1.0, got ", factor);
  const size_t groups = optimizer.param_groups().size();
  if (min_lrs_.empty()) min_lrs_.assign(groups, 0.0f);
  TORCH_CHECK(min_lrs_.size() == groups, "Number of learning rates not equal to the number of param groups\nExpected: ", groups,
              " learning rates, got ", min_lrs_.size(), " in min_lr");
}
bool ReduceLROnPlateauScheduler::is_better(float metric) const {
  const double by = mode_ == min ? -threshold_ : threshold_;
  const double bound = threshold_mode_ == rel ? best_ * (1 + by) : best_ + by;
  return mode_ == min ? metric < bound : metric > bound;
}
void ReduceLROnPlateauScheduler::step(float metric) {
  ++epoch_;
  if (is_better(metric)) {
    best_ = metric;
    bad_epochs_ = 0;
  } else {
    ++bad_epochs_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_epochs_ = 0;
  }
  if (bad_epochs_ <= patience_) return;
  reduce();
  cooldown_left_ = cooldown_;
  bad_epochs_ = 0;
}
void ReduceLROnPlateauScheduler::reduce() {
  for (size_t i = 0; i < optimizer_.param_groups().size(); ++i) {
    OptimizerOptions& options = optimizer_.param_groups()[i].options();
    const double old = options.get_lr(), next = std::max(old * factor_, double(min_lrs_[i]));
    if (old - next <= eps_) continue;
    options.set_lr(next);
    if (verbose_) std::cout << "Epoch " << epoch_ << ": reducing learning rate of group " << i << " to " << next << std::endl;
  }
}

namespace {

hs::NumberTuple<2> pair(const betas_t& b) { return {std::get<0>(b), std::get<1>(b)}; }

hs::SGDOptions to_hs(const SGDOptions& o) {
  return {.lr = o.lr(),
          .momentum = o.momentum(),
          .dampening = o.dampening(),
          .weight_decay = o.weight_decay(),
          .nesterov = o.nesterov()};
}
hs::AdamOptions to_hs(const AdamOptions& o) {
  return {.lr = o.lr(), .betas = pair(o.betas()), .eps = o.eps(), .weight_decay = o.weight_decay(), .amsgrad = o.amsgrad()};
}
hs::AdamWOptions to_hs(const AdamWOptions& o) {
  return {.lr = o.lr(), .betas = pair(o.betas()), .eps = o.eps(), .weight_decay = o.weight_decay(), .amsgrad = o.amsgrad()};
}
hs::AdagradOptions to_hs(const AdagradOptions& o) {
  return {.lr = o.lr(),
          .lr_decay = o.lr_decay(),
          .weight_decay = o.weight_decay(),
          .initial_accumulator_value = o.initial_accumulator_value(),
          .eps = o.eps()};
}
hs::RMSpropOptions to_hs(const RMSpropOptions& o) {
  return {.lr = o.lr(),
          .alpha = o.alpha(),
          .eps = o.eps(),
          .weight_decay = o.weight_decay(),
          .momentum = o.momentum(),
          .centered = o.centered()};
}
hs::LBFGSOptions to_hs(const LBFGSOptions& o) {
  TORCH_CHECK(!o.line_search_fn() || *o.line_search_fn() == "strong_wolfe", "only 'strong_wolfe' is supported");
  return {.lr = o.lr(),
          .max_iter = o.max_iter(),
          .max_eval = o.max_eval().value_or(0),
          .tolerance_grad = o.tolerance_grad(),
          .tolerance_change = o.tolerance_change(),
          .history_size = o.history_size(),
          .line_search_fn = o.line_search_fn().value_or("none")};
}

// Takes over options that were loaded.
void from_hs(SGDOptions& o, const hs::SGDOptions& s) {
  o.lr(s.lr).momentum(s.momentum).dampening(s.dampening).weight_decay(s.weight_decay).nesterov(s.nesterov);
}
template <class Room, class Own>
void from_adam(Room& o, const Own& s) {
  o.lr(s.lr).betas(betas_t(s.betas[0], s.betas[1])).eps(s.eps).weight_decay(s.weight_decay).amsgrad(s.amsgrad);
}
void from_hs(AdamOptions& o, const hs::AdamOptions& s) { from_adam(o, s); }
void from_hs(AdamWOptions& o, const hs::AdamWOptions& s) { from_adam(o, s); }
void from_hs(AdagradOptions& o, const hs::AdagradOptions& s) {
  o.lr(s.lr).lr_decay(s.lr_decay).weight_decay(s.weight_decay);
  o.initial_accumulator_value(s.initial_accumulator_value).eps(s.eps);
}
void from_hs(RMSpropOptions& o, const hs::RMSpropOptions& s) {
  o.lr(s.lr).alpha(s.alpha).eps(s.eps).weight_decay(s.weight_decay).momentum(s.momentum).centered(s.centered);
}
void from_hs(LBFGSOptions& o, const hs::LBFGSOptions& s) {
  o.lr(s.lr).max_iter(s.max_iter).tolerance_grad(s.tolerance_grad).tolerance_change(s.tolerance_change);
  o.history_size(s.history_size);
}

template <class Options>
struct OwnOf;
template <>
struct OwnOf<SGDOptions> {
  using type = hs::SGD;
};
template <>
struct OwnOf<AdamOptions> {
  using type = hs::Adam;
};
template <>
struct OwnOf<AdamWOptions> {
  using type = hs::AdamW;
};
template <>
struct OwnOf<AdagradOptions> {
  using type = hs::Adagrad;
};
template <>
struct OwnOf<RMSpropOptions> {
  using type = hs::RMSprop;
};
template <>
struct OwnOf<LBFGSOptions> {
  using type = hs::LBFGS;
};

template <class Options>
hs::ParamGroup group_of(const OptimizerParamGroup& g) {
  const auto& o = static_cast<const Options&>(g.options());
  hs::ParamGroup out;
  out.params = ::torch::detail::H(g.params());
  out.lr = o.lr();
  out.options = to_hs(o);
  return out;
}

}  // namespace

template <class Options>
FusedOptimizer<Options>::FusedOptimizer(std::vector<OptimizerParamGroup> groups, Options defaults)
    : Optimizer(std::move(groups), std::make_unique<Options>(defaults)) {
  std::vector<hs::ParamGroup> own;
  for (const auto& g : groups_) own.push_back(group_of<Options>(g));
  own_ = std::make_unique<typename OwnOf<Options>::type>(std::move(own), to_hs(defaults));
}
template <class Options>
FusedOptimizer<Options>::~FusedOptimizer() = default;
template <class Options>
void FusedOptimizer<Options>::add_param_group(const OptimizerParamGroup& group) {
  put(group);
  own_->add_param_group(group_of<Options>(groups_.back()));
}
template <class Options>
hs::Optimizer* FusedOptimizer<Options>::halfstep() {
  auto& own = static_cast<typename OwnOf<Options>::type&>(*own_);
  for (size_t i = 0; i < groups_.size(); ++i) {
    TORCH_CHECK(groups_[i].params().size() == own.param_groups()[i].params.size(),
                "the parameters of a group changed after the optimizer was made: call add_param_group");
    own.options(i) = to_hs(static_cast<const Options&>(groups_[i].options()));
  }
  return own_.get();
}
template <class Options>
Tensor FusedOptimizer<Options>::step(LossClosure closure) {
  hs::Optimizer& own = *halfstep();
  if (!closure) {
    own.step();
    return {};
  }
  return *own.step([&]() -> hs::Tensor { return closure().h(); });
}
template <class Options>
void FusedOptimizer<Options>::load(serialize::InputArchive& archive) {
  Optimizer::load(archive);
  const auto& own = static_cast<const typename OwnOf<Options>::type&>(*own_);
  for (size_t i = 0; i < groups_.size(); ++i) from_hs(static_cast<Options&>(groups_[i].options()), own.options(i));
}
template class FusedOptimizer<SGDOptions>;
template class FusedOptimizer<AdamOptions>;
template class FusedOptimizer<AdamWOptions>;
template class FusedOptimizer<AdagradOptions>;
template class FusedOptimizer<RMSpropOptions>;
template class FusedOptimizer<LBFGSOptions>;

}  // namespace torch::optim
