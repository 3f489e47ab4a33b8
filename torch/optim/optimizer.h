// SPDX-License-Identifier: Apache-2.0
// torch::optim::Optimizer, its groups of parameters, and schedules.
#pragma once

#include <unordered_map>

#include "torch/tensor/network.h"

namespace ska {

template <class K, class V>
using flat_hash_map = std::unordered_map<K, V>;

}  // namespace ska

namespace halfstep {

class Optimizer;

}  // namespace halfstep

namespace torch {

namespace serialize {
class InputArchive;
class OutputArchive;
}  // namespace serialize

namespace optim {

// What an optimizer keeps for a parameter. What a class does not override throws, as in libtorch.
class OptimizerParamState {
 public:
  // A number or a tensor of the state, by halfstep's name.
  struct Field {
    const char* name;
    int64_t* number;
    Tensor* tensor;
  };
  virtual ~OptimizerParamState() = default;
  virtual std::unique_ptr<OptimizerParamState> clone() const;
  virtual void serialize(serialize::InputArchive& archive);
  virtual void serialize(serialize::OutputArchive& archive) const;
  virtual std::vector<Field> fields() { return {}; }
};
template <class Derived>
class OptimizerCloneableParamState : public OptimizerParamState {
 public:
  std::unique_ptr<OptimizerParamState> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};
using ParamStates = ska::flat_hash_map<void*, std::unique_ptr<OptimizerParamState>>;  // by p.unsafeGetTensorImpl()

class OptimizerOptions {
 public:
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const;
  virtual void serialize(serialize::InputArchive& archive);
  virtual void serialize(serialize::OutputArchive& archive) const;
  virtual double get_lr() const;
  virtual void set_lr(double lr);
  bool operator==(const OptimizerOptions&) const { return true; }  // what derived classes compare is all there is
};
template <class Derived>
class OptimizerCloneableOptions : public OptimizerOptions {
 public:
  std::unique_ptr<OptimizerOptions> clone() const override { return std::make_unique<Derived>(static_cast<const Derived&>(*this)); }
  double get_lr() const override {
    if constexpr (requires(const Derived& o) { o.lr(); })
      return static_cast<const Derived*>(this)->lr();
    else
      return OptimizerOptions::get_lr();
  }
  void set_lr(double lr) override {
    if constexpr (requires(Derived & o) { o.lr(lr); })
      static_cast<Derived*>(this)->lr(lr);
    else
      OptimizerOptions::set_lr(lr);
  }
};

class OptimizerParamGroup {
 public:
  OptimizerParamGroup(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> options = nullptr)
      : params_(std::move(params)), options_(std::move(options)) {}
  OptimizerParamGroup(const OptimizerParamGroup& o) : params_(o.params_), options_(o.options_ ? o.options_->clone() : nullptr) {}
  OptimizerParamGroup& operator=(const OptimizerParamGroup& o);
  bool has_options() const { return options_ != nullptr; }
  OptimizerOptions& options();
  const OptimizerOptions& options() const;
  void set_options(std::unique_ptr<OptimizerOptions> options) { options_ = std::move(options); }
  std::vector<Tensor>& params() { return params_; }
  const std::vector<Tensor>& params() const { return params_; }

 private:
  std::vector<Tensor> params_;
  std::unique_ptr<OptimizerOptions> options_;
};

class Optimizer {
 public:
  using LossClosure = std::function<Tensor()>;
  Optimizer(std::vector<OptimizerParamGroup> groups, std::unique_ptr<OptimizerOptions> defaults);
  Optimizer(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> defaults)
      : Optimizer(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, std::move(defaults)) {}
  Optimizer(const Optimizer&) = delete;
  virtual ~Optimizer() = default;
  virtual Tensor step(LossClosure closure = nullptr) = 0;
  void add_param_group(const OptimizerParamGroup& group);
  void add_parameters(const std::vector<Tensor>& parameters);
  void zero_grad(bool set_to_none = true);
  // As in libtorch these warn that they will be removed, and mean the first group, size() all groups.
  const std::vector<Tensor>& parameters() const;
  std::vector<Tensor>& parameters();
  size_t size() const;
  OptimizerOptions& defaults() noexcept { return *defaults_; }
  const OptimizerOptions& defaults() const noexcept { return *defaults_; }
  std::vector<OptimizerParamGroup>& param_groups() noexcept { return param_groups_; }
  const std::vector<OptimizerParamGroup>& param_groups() const noexcept { return param_groups_; }
  // Returns the states by parameter. Those of torch::optim's optimizers share their tensors with halfstep's states; what is
  // written, erased or added counts from the next step.
  ParamStates& state() {
    refresh_state(true);
    return state_;
  }
  const ParamStates& state() const { return const_cast<Optimizer*>(this)->state(); }
  // Returns halfstep's, for GradScaler, schedules and checkpoints. Null for an optimizer that a program wrote itself. A step after
  // the parameters of a group have changed makes a new one.
  virtual hs::Optimizer* halfstep() { return nullptr; }
  // Updates the states that the program has seen, after a step; first: before it sees them.
  virtual void refresh_state([[maybe_unused]] bool first = false) {}
  virtual void save(serialize::OutputArchive& archive) const;
  virtual void load(serialize::InputArchive& archive);

 protected:
  // Takes over the defaults for options of a group that equal those of a new object, as libtorch does.
  virtual void merge_defaults(OptimizerOptions&) const {}
  std::vector<OptimizerParamGroup> param_groups_;
  ParamStates state_;
  std::unique_ptr<OptimizerOptions> defaults_;
};

class LRScheduler {
 public:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) {}
  virtual ~LRScheduler() = default;
  void step();

 protected:
  virtual std::vector<double> get_lrs() = 0;
  std::vector<double> get_current_lrs() const;
  unsigned step_count_ = 0;
  Optimizer& optimizer_;
};
class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, unsigned step_size, double gamma = 0.1)
      : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {}

 private:
  std::vector<double> get_lrs() override;
  const unsigned step_size_;
  const double gamma_;
};
// Multiplies each group's rate by `factor`, down to its min_lr, after more than `patience` metrics in a row that are not better
// than the best one by `threshold`: a share of it (rel), or a difference (abs). Then `cooldown` metrics count as good.
class ReduceLROnPlateauScheduler {
 public:
  enum SchedulerMode { min, max };
  enum ThresholdMode { rel, abs };
  ReduceLROnPlateauScheduler(Optimizer& optimizer, SchedulerMode mode = min, float factor = 0.1f, int patience = 10,
                             double threshold = 1e-4, ThresholdMode threshold_mode = rel, int cooldown = 0,
                             const std::vector<float>& min_lr = {}, double eps = 1e-8, bool verbose = false);
  virtual ~ReduceLROnPlateauScheduler() = default;
  void step(float metric);

 private:
  bool is_better(float metric) const;
  void reduce();
  Optimizer& optimizer_;
  SchedulerMode mode_;
  float factor_;
  int patience_;
  double threshold_;
  ThresholdMode threshold_mode_;
  int cooldown_;
  std::vector<float> min_lrs_;  // of each group
  double eps_;                  // rates that would change by less stay
  bool verbose_;
  float best_;
  int epoch_ = 0, bad_epochs_ = 0, cooldown_left_ = 0;
};

}  // namespace optim
}  // namespace torch
