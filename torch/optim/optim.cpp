// SPDX-License-Identifier: Apache-2.0
#include "torch/optim/optim.h"

#include "optim/optimizer.h"
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

namespace {
// Throws for a function that a program's own class of options or states lacks.
[[noreturn]] void refuse(const char* function, const char* base) {
  TORCH_CHECK(false, function, " has not been implemented for torch::optim::", base, ". Please override it.");
}
}  // namespace
std::unique_ptr<OptimizerParamState> OptimizerParamState::clone() const { refuse("clone()", "OptimizerParamState"); }
void OptimizerParamState::serialize(serialize::InputArchive&) { refuse("serialize(InputArchive&)", "OptimizerParamState"); }
void OptimizerParamState::serialize(serialize::OutputArchive&) const { refuse("serialize(OutputArchive&)", "OptimizerParamState"); }
std::unique_ptr<OptimizerOptions> OptimizerOptions::clone() const { refuse("clone()", "OptimizerOptions"); }
void OptimizerOptions::serialize(serialize::InputArchive&) { refuse("serialize(InputArchive&)", "OptimizerOptions"); }
void OptimizerOptions::serialize(serialize::OutputArchive&) const { refuse("serialize(OutputArchive&)", "OptimizerOptions"); }
double OptimizerOptions::get_lr() const { refuse("double get_lr()", "OptimizerOptions"); }
void OptimizerOptions::set_lr(double) { refuse("set_lr(double)", "OptimizerOptions"); }

Optimizer::Optimizer(std::vector<OptimizerParamGroup> groups, std::unique_ptr<OptimizerOptions> defaults)
    : defaults_(std::move(defaults)) {
  for (const auto& g : groups) add_param_group(g);
}
void Optimizer::add_param_group(const OptimizerParamGroup& given) {
  OptimizerParamGroup group = given;
  for (const Tensor& p : group.params()) TORCH_CHECK(p.is_leaf(), "can't optimize a non-leaf Tensor");
  for (const auto& other : param_groups_) {
    for (const Tensor& p : other.params()) {
      for (const Tensor& q : group.params()) TORCH_CHECK(!p.is_same(q), "some parameters appear in more than one parameter group");
    }
  }
  if (!group.has_options())
    group.set_options(defaults_->clone());
  else
    merge_defaults(group.options());
  param_groups_.push_back(std::move(group));
}
void Optimizer::zero_grad(bool set_to_none) {
  for (const auto& g : param_groups_) {
    for (const Tensor& p : g.params()) ::torch::detail::zero_grad(p, set_to_none);
  }
}
void Optimizer::add_parameters(const std::vector<Tensor>& parameters) {
  TORCH_WARN("Optimizer::add_parameters() will be removed in PyTorch 1.6");
  auto& first = param_groups_.at(0).params();
  first.insert(first.end(), parameters.begin(), parameters.end());
}
const std::vector<Tensor>& Optimizer::parameters() const {
  TORCH_WARN("Optimizer::parameters() will be removed in PyTorch 1.6");
  return param_groups_.at(0).params();
}
std::vector<Tensor>& Optimizer::parameters() {
  return const_cast<std::vector<Tensor>&>(static_cast<const Optimizer*>(this)->parameters());
}
size_t Optimizer::size() const {
  TORCH_WARN("Optimizer::size() will be removed in PyTorch 1.6");
  size_t n = 0;
  for (const auto& g : param_groups_) n += g.params().size();
  return n;
}
void Optimizer::save(serialize::OutputArchive& archive) const {
  auto* own = const_cast<Optimizer*>(this)->halfstep();
  TORCH_CHECK(own, "save: an optimizer without parameters, or that is not one of torch::optim, which must override save and load");
  for (const auto& [name, t] : own->state_dict()) archive.write(name, Tensor(t));
}
void Optimizer::load(serialize::InputArchive& archive) {
  auto* own = halfstep();
  TORCH_CHECK(own, "load: an optimizer without parameters, or that is not one of torch::optim, which must override save and load");
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

}  // namespace torch::optim
