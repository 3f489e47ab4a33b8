// SPDX-License-Identifier: Apache-2.0
// One training step: forward and loss under autocast, scaled backward, clipping, update. The trainer runs this for each batch.
//
//   TrainStep step(net, loss_fn, opt, scaler, &schedule, {.amp = DType::f16, .clip_grad_norm = 1});
//   for (batch : loader) { StepResult r = step(batch.input, batch.target); }
//   step.flush();  // at the end of an epoch
//
// A module of several inputs takes them all before the target, and a step whose loss is not loss_fn(net(inputs), target) is given a
// function that computes it:
//   for (auto [a, b, label] : loader) step(a, b, label);
//   for (auto [a, b, same] : loader) step([&] { return cosine_embedding_loss(net(a), net(b), same); });
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "amp/autocast/autocast.h"
#include "amp/diagnosis/step_under_test.h"
#include "amp/step/accumulation_window.h"
#include "amp/step/grad_scaler.h"
#include "amp/step/rank_exchange.h"
#include "amp/step/state_rollback.h"
#include "amp/step/step_recorder.h"
#include "layers/layers.h"
#include "optim/device_rates.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace halfstep {

struct TrainStepOptions {
  Device device = Device::cpu;   // of the autocast region
  std::optional<DType> amp = {};  // autocast with this dtype, f16 or bf16; nothing: no autocast
  double clip_grad_norm = 0;     // 0: off; for true (unscaled) gradients, as the next
  double clip_grad_value = 0;    // 0: off
  double clip_grad_agc = 0;      // 0: off; the factor of clip_grad_agc_, which comes first
  bool grad_norm = false;        // report the norm of the gradients also without clip_grad_norm, which changes no bit of the step
  int64_t accumulate_steps = 1;  // micro-batches a step (accumulation_window.h)
  GraphMode graph = GraphMode::automatic;  // of a device that can record; needs accumulate_steps 1
  ProcessGroup* group = nullptr;           // of ranks that train one model (rank_exchange.h); must outlive the step
  ReducerOptions reducer = {};             // how they exchange gradients
  // Called before the backward of a loss that is not finite, with what computes it again, for amp/diagnosis/diagnose.h. It makes
  // each step read its loss, which on a GPU waits for the device and keeps the steps from being recorded. It may throw.
  std::function<void(const StepUnderTest&)> on_bad_loss = nullptr;
  // Keep what on_bad_loss needs: copies of what a forward changes (state_rollback.h), also without a scaler.
  bool keeps_states = false;
  OpPolicies policies = {};  // of the region, in place of those that ops have
};

namespace train_step {

// Calls a module with 2 to 6 tensors, where its forward takes as many and gives one.
using ForwardOfSeveral = Tensor (*)(Module&, const Tensors&);
template <class M, size_t... k>
inline constexpr bool kTakes = requires(M& m, const Tensors& t) {
  { m.forward(t[k]...) } -> std::same_as<Tensor>;
};
[[noreturn]] void wrong_inputs(const Module& module, size_t given);  // throws ValueError
template <class M>
Tensor forward_of_several(Module& module, const Tensors& t) {
  [[maybe_unused]] M& m = static_cast<M&>(module);
  if constexpr (kTakes<M, 0, 1>) {
    if (t.size() == 2) return m(t[0], t[1]);
  }
  if constexpr (kTakes<M, 0, 1, 2>) {
    if (t.size() == 3) return m(t[0], t[1], t[2]);
  }
  if constexpr (kTakes<M, 0, 1, 2, 3>) {
    if (t.size() == 4) return m(t[0], t[1], t[2], t[3]);
  }
  if constexpr (kTakes<M, 0, 1, 2, 3, 4>) {
    if (t.size() == 5) return m(t[0], t[1], t[2], t[3], t[4]);
  }
  if constexpr (kTakes<M, 0, 1, 2, 3, 4, 5>) {
    if (t.size() == 6) return m(t[0], t[1], t[2], t[3], t[4], t[5]);
  }
  wrong_inputs(module, t.size());
}

}  // namespace train_step

class TrainStep {
 public:
  // All arguments must outlive it; `schedule` may be null. Throws ValueError for options outside their domain.
  TrainStep(Module& module, const Loss& loss, Optimizer& optimizer, GradScaler& scaler, Schedule* schedule,
            const TrainStepOptions& options = {});
  // The same for a class whose forward takes several tensors.
  template <std::derived_from<Module> M>
    requires(!std::same_as<M, Module>)
  TrainStep(M& module, const Loss& loss, Optimizer& optimizer, GradScaler& scaler, Schedule* schedule,
            const TrainStepOptions& options = {})
      : TrainStep(static_cast<Module&>(module), loss, optimizer, scaler, schedule, options) {
    forward_of_several_ = train_step::forward_of_several<M>;
  }

  // Forward, backward and, at the end of a window, the step. An optimizer that evaluates the loss itself (LBFGS) does so on this
  // batch, without a scaler, clipping or accumulation; the result is that of its first evaluation. Buffers that forward writes to
  // change with applied steps only (state_rollback.h). A window in which no target counts (Loss::denominator) is skipped.
  //
  // With a group, `part` says which rows of the whole batch these are; without it, every rank has the same number of rows. Rank 0
  // has the most rows; for an empty part, input and target are ignored. The loss of the result is then that of the window on all
  // ranks, defined at its end. Throws ValueError if the ranks do not agree about the samples of a window.
  //
  // Gradients stay in place until the next window begins. With a scaler they stay multiplied by its scale unless the step clipped.
  // Those of parameters that autocast lowered are kept in its dtype, on every device, when the step neither clips nor accumulates:
  // 16 bits from the product to the optimizer. So they are rounded, and may overflow, like PyTorch's. grad() returns them converted
  // to float32.
  //
  // On a GPU nothing here waits for the device, even if the schedule counts skipped steps (optim/device_rates.h), and whole steps
  // are recorded once and replayed (step_recorder.h) if that is faster. Both ways give the bits of eager steps.
  StepResult operator()(const Tensor& input, const Tensor& target, const std::optional<BatchRows>& part = {});
  // A step of a module of several inputs, up to 6, whose first dimension is that of the batch. Such steps are not recorded: they
  // run eagerly, also on a GPU. Throws ValueError for a module whose forward does not take as many tensors and give one.
  StepResult operator()(const Tensors& inputs, const Tensor& target, const std::optional<BatchRows>& part = {});
  template <std::derived_from<Tensor>... T>
  StepResult operator()(const Tensor& first, const Tensor& second, const Tensor& third, const T&... more) {
    Tensors inputs{first, second, third, more...};
    const Tensor target = std::move(inputs.back());
    inputs.pop_back();
    return (*this)(inputs, target);
  }
  // The last tensor of a batch is the target.
  template <std::derived_from<Tensor>... T>
  StepResult operator()(const std::tuple<T...>& batch) {
    static_assert(sizeof...(T) >= 2, "TrainStep: a batch has at least an input and a target");
    return std::apply(*this, batch);
  }
  // A step on the loss that `loss` computes in the autocast region: one number. It replaces the module's forward and the loss of
  // the constructor; the result has no output. Such steps are not recorded. `over`: what it is a mean over, such as the number of
  // tokens that count; left out: the rows of `part`, and without `part` all calls of a window count the same.
  StepResult operator()(const std::function<Tensor()>& loss, const std::optional<BatchRows>& part = {},
                        std::optional<double> over = {});
  // Steps with the accumulated gradients; does nothing when there are none.
  StepResult flush();
  // Micro-batches in the open window. Checkpoints are exact where it is 0.
  int64_t pending() const { return window_.pending(); }
  // Bits for the other ranks, sent with the next step that ends a window, and those that any rank sent with the last one.
  void notify(uint32_t bits) {
    if (ranks_) ranks_->notify(bits);
  }
  uint32_t notices() const { return ranks_ ? ranks_->notices() : 0; }
  // From the next step on, what computes it again is kept until the one after it begins: its inputs too. Waits for the scale.
  void keep_step(bool keep);
  // Of the last step, if it was kept. True while nothing has changed the parameters since: where the step was skipped.
  const std::optional<StepUnderTest>& kept_step() const { return kept_step_; }
  // A step on one micro-batch, for diagnose() and its kin; nothing is computed. With a group: the rows of this rank.
  StepUnderTest described(const Tensor& input, const Tensor& target, const std::optional<BatchRows>& part = {});
  // Are steps being replayed? For reports.
  bool is_recorded() const { return recorder_ && recorder_->is_recorded(); }

 private:
  void check_options() const;
  bool may_record() const;
  BatchRows rows_of(const Tensor& input, const std::optional<BatchRows>& part) const;
  // What a step computes in the region: the module's output, which may be undefined, and the loss.
  struct Work {
    std::function<std::pair<Tensor, Tensor>(const Tensor& seed)> forward;  // seed: as of Loss::with_seed
    Tensors inputs = {}, targets = {};  // where they are known
    bool on_device = false;             // the inputs are on the region's device
    Denominator over = 0.0;             // what the loss is a mean over
  };
  // `ring`: where the loss and found_inf go as well (math::StepTail), or null.
  StepResult eager(const Tensor& input, const Tensor& target, const BatchRows& part, math::ResultRing* ring);
  StepResult eager(const Work& work, const BatchRows& part, math::ResultRing* ring);
  StepResult by_closure(const Work& work);
  StepResult compute(const Work& work, const BatchRows& part);
  Work work_of(const Tensor& input, const Tensor& target, const BatchRows& part);
  Denominator denominator_of(const Tensor& target, const BatchRows& part) const;
  StepResult skipped();  // at the end of a window in which no target counts
  StepUnderTest under_test() const;  // without batches
  TestedBatch tested(const Work& work, const BatchRows& part) const;
  void keep(const Work& work, const BatchRows& part);
  StepResult finish_window(math::ResultRing* ring = nullptr, const Tensor& loss = {});
  AutocastOptions region_options() const;
  bool clips() const;
  bool keeps_low_gradients() const;
  Tensor clip();
  Tensor measured_norm();

  Module& module_;
  train_step::ForwardOfSeveral forward_of_several_ = nullptr;
  const Loss& loss_;
  Optimizer& optimizer_;
  GradScaler& scaler_;
  Schedule* schedule_;
  TrainStepOptions options_;
  AccumulationWindow window_;
  StateRollback states_;
  bool keeps_step_ = false;
  std::optional<StepUnderTest> kept_step_;
  Tensor window_loss_;                   // the sum of the micro-batches' losses so far, where the scaler wants it
  std::unique_ptr<RankExchange> ranks_;  // with a group
  std::unique_ptr<DeviceRates> rates_;
  std::unique_ptr<StepRecorder> recorder_;
};

}  // namespace halfstep
