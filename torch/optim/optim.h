// SPDX-License-Identifier: Apache-2.0
// torch::optim's optimizers: the step, the states and mixed precision are halfstep's, the options are libtorch's.
#pragma once

#include <deque>

#include "torch/optim/optimizer.h"

namespace torch::optim {

using betas_t = std::tuple<double, double>;

struct SGDOptions : OptimizerCloneableOptions<SGDOptions> {
  SGDOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(double, dampening) = 0;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, nesterov) = false;

 public:
  bool operator==(const SGDOptions&) const = default;
};
#define HS_TORCH_ADAM_OPTIONS(Name, decay)           \
  struct Name : OptimizerCloneableOptions<Name> {    \
    Name(double lr = 1e-3) : lr_(lr) {}              \
    TORCH_ARG(double, lr);                           \
    TORCH_ARG(betas_t, betas) = betas_t(0.9, 0.999); \
    TORCH_ARG(double, eps) = 1e-8;                   \
    TORCH_ARG(double, weight_decay) = decay;         \
    TORCH_ARG(bool, amsgrad) = false;                \
                                                     \
   public:                                           \
    bool operator==(const Name&) const = default;    \
  };
HS_TORCH_ADAM_OPTIONS(AdamOptions, 0)
HS_TORCH_ADAM_OPTIONS(AdamWOptions, 1e-2)
#undef HS_TORCH_ADAM_OPTIONS
struct AdagradOptions : OptimizerCloneableOptions<AdagradOptions> {
  AdagradOptions(double lr = 1e-2) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, lr_decay) = 0;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, initial_accumulator_value) = 0;
  TORCH_ARG(double, eps) = 1e-10;

 public:
  bool operator==(const AdagradOptions&) const = default;
};
struct RMSpropOptions : OptimizerCloneableOptions<RMSpropOptions> {
  RMSpropOptions(double lr = 1e-2) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, alpha) = 0.99;
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(bool, centered) = false;

 public:
  bool operator==(const RMSpropOptions&) const = default;
};
struct LBFGSOptions : OptimizerCloneableOptions<LBFGSOptions> {
  LBFGSOptions(double lr = 1) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(int64_t, max_iter) = 20;
  TORCH_ARG(std::optional<int64_t>, max_eval) = std::nullopt;
  TORCH_ARG(double, tolerance_grad) = 1e-7;
  TORCH_ARG(double, tolerance_change) = 1e-9;
  TORCH_ARG(int64_t, history_size) = 100;
  TORCH_ARG(std::optional<std::string>, line_search_fn) = std::nullopt;

 public:
  bool operator==(const LBFGSOptions&) const = default;
};

// ---- states
bool operator==(const OptimizerParamState& a, const OptimizerParamState& b);  // of the same class

struct SGDParamState : OptimizerCloneableParamState<SGDParamState> {
  TORCH_ARG(Tensor, momentum_buffer);

 public:
  std::vector<Field> fields() override { return {{"momentum_buffer", nullptr, &momentum_buffer_}}; }
};
struct AdamParamState : OptimizerCloneableParamState<AdamParamState> {
  TORCH_ARG(int64_t, step) = 0;
  TORCH_ARG(Tensor, exp_avg);
  TORCH_ARG(Tensor, exp_avg_sq);
  TORCH_ARG(Tensor, max_exp_avg_sq);

 public:
  std::vector<Field> fields() override;
};
struct AdamWParamState : AdamParamState {
  std::unique_ptr<OptimizerParamState> clone() const override { return std::make_unique<AdamWParamState>(*this); }
};
struct AdagradParamState : OptimizerCloneableParamState<AdagradParamState> {
  TORCH_ARG(Tensor, sum);
  TORCH_ARG(int64_t, step) = 0;

 public:
  std::vector<Field> fields() override { return {{"step", &step_, nullptr}, {"sum", nullptr, &sum_}}; }
};
struct RMSpropParamState : OptimizerCloneableParamState<RMSpropParamState> {
  TORCH_ARG(int64_t, step) = 0;
  TORCH_ARG(Tensor, square_avg);
  TORCH_ARG(Tensor, momentum_buffer);
  TORCH_ARG(Tensor, grad_avg);

 public:
  std::vector<Field> fields() override;
};
// Of all parameters together, at the first one.
struct LBFGSParamState : OptimizerCloneableParamState<LBFGSParamState> {
  TORCH_ARG(int64_t, func_evals) = 0;
  TORCH_ARG(int64_t, n_iter) = 0;
  TORCH_ARG(double, t) = 0;
  TORCH_ARG(double, prev_loss) = 0;
  TORCH_ARG(Tensor, d);
  TORCH_ARG(Tensor, H_diag);
  TORCH_ARG(Tensor, prev_flat_grad);
  TORCH_ARG(std::deque<Tensor>, old_dirs);  // changes of the gradient
  TORCH_ARG(std::deque<Tensor>, old_stps);
  TORCH_ARG(std::deque<Tensor>, ro);                                 // follows from old_dirs and old_stps
  TORCH_ARG(std::optional<std::vector<Tensor>>, al) = std::nullopt;  // a step's scratch memory: unset
};
bool operator==(const LBFGSParamState& a, const LBFGSParamState& b);

// One of halfstep's optimizers, which takes its options and states from libtorch's before each step.
template <class Options>
class FusedOptimizer : public Optimizer {
 public:
  FusedOptimizer(std::vector<OptimizerParamGroup> groups, Options defaults);
  ~FusedOptimizer() override;
  Tensor step(LossClosure closure = nullptr) override;
  hs::Optimizer* halfstep() override;
  void refresh_state(bool first = false) override;
  void load(serialize::InputArchive& archive) override;

 private:
  void merge_defaults(OptimizerOptions& options) const override;
  std::unique_ptr<hs::Optimizer> make() const;
  void adopt_parameters();
  void adopt_states();
  bool load_old(serialize::InputArchive& archive);
  struct States;                        // as the program last saw them
  std::unique_ptr<hs::Optimizer> own_;  // null: there are no parameters yet
  std::unique_ptr<States> seen_;        // null: it never asked for them
};

#define HS_TORCH_OPTIMIZER(Name, ...)                                                                               \
  extern template class OptimizerCloneableOptions<Name##Options>;                                                   \
  extern template class FusedOptimizer<Name##Options>;                                                              \
  class Name : public FusedOptimizer<Name##Options> {                                                               \
   public:                                                                                                          \
    Name(std::vector<OptimizerParamGroup> groups, Name##Options o __VA_ARGS__)                                      \
        : FusedOptimizer(std::move(groups), std::move(o)) {}                                                        \
    Name(std::vector<Tensor> params, Name##Options o __VA_ARGS__)                                                   \
        : FusedOptimizer(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, std::move(o)) {} \
  };
extern template class OptimizerCloneableParamState<SGDParamState>;
extern template class OptimizerCloneableParamState<AdamParamState>;
extern template class OptimizerCloneableParamState<AdagradParamState>;
extern template class OptimizerCloneableParamState<RMSpropParamState>;
extern template class OptimizerCloneableParamState<LBFGSParamState>;
HS_TORCH_OPTIMIZER(SGD)
HS_TORCH_OPTIMIZER(Adam, = {})
HS_TORCH_OPTIMIZER(AdamW, = {})
HS_TORCH_OPTIMIZER(Adagrad, = {})
HS_TORCH_OPTIMIZER(RMSprop, = {})
HS_TORCH_OPTIMIZER(LBFGS, = {})
#undef HS_TORCH_OPTIMIZER

}  // namespace torch::optim
