// SPDX-License-Identifier: Apache-2.0
// One training step: forward and loss under autocast, scaled backward, clipping, update. The trainer runs it for each batch.
//
//   TrainStep step(net, loss_fn, opt, scaler, &schedule, {.amp = DType::f16, .clip_grad_norm = 1});
//   for (batch : loader) { StepResult r = step(batch.input, batch.target); }
//   step.flush();  // at the end of an epoch
//
// A module of several inputs takes them all before the target. A step whose loss is not loss_fn(net(inputs), target) takes a
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
  Device device = Device::cpu;    // of the autocast region
  std::optional<DType> amp = {};  // autocast with this dtype, f16 or bf16; nothing: no autocast
  double clip_grad_norm = 0;      // 0: off; applies to unscaled gradients, as does the next
  double clip_grad_value = 0;     // 0: off
  double clip_grad_agc = 0;       // 0: off; the factor of clip_grad_agc_, which runs first
  bool grad_norm = false;         // report the norm of the gradients also without clip_grad_norm; changes no bit of the step
  int64_t accumulate_steps = 1;   // micro-batches a step (accumulation_window.h)
  GraphMode graph = GraphMode::automatic;  // for devices that can record; needs accumulate_steps 1
  ProcessGroup* group = nullptr;           // ranks that train one model (rank_exchange.h); must outlive the step
  ReducerOptions reducer = {};             // options of the gradient exchange
  // Called before the backward of a loss that is not finite, with a description of the step for amp/diagnosis/diagnose.h. Each
  // step then reads its loss, which on a GPU waits for the device and prevents recording. It may throw.
  std::function<void(const StepUnderTest&)> on_bad_loss = nullptr;
  // Keeps the copies that on_bad_loss needs of what a forward changes (state_rollback.h), also without a scaler.
  bool keeps_states = false;
  OpPolicies policies = {};  // replace the ops' own policies in the region
};

namespace train_step {

// Calls a module with 2 to 6 tensors, if its forward takes as many and returns one.
using ForwardOfSeveral = Tensor (*)(Module&, const Tensors&);
template <class M, size_t... k>
inline constexpr bool kTakes = requires(M& m, const Tensors& t) {
  { m.forward(t[k]...) } -> std::same_as<Tensor>;
};
[[noreturn]] void throw_wrong_inputs(const Module& module, size_t given);  // throws ValueError
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
  throw_wrong_inputs(module, t.size());
}

}  // namespace train_step

// Neither copied nor moved. Throws ValueError once its optimizer, scaler or schedule has been destroyed.
class TrainStep {
 public:
  // `module` and `loss` must outlive it; `schedule` may be null. Throws ValueError for options outside their domain.
  TrainStep(Module& module, const Loss& loss, Optimizer& optimizer, GradScaler& scaler, Schedule* schedule,
            const TrainStepOptions& options = {});
  // Takes a class whose forward takes several tensors.
  template <std::derived_from<Module> M>
    requires(!std::same_as<M, Module>)
  TrainStep(M& module, const Loss& loss, Optimizer& optimizer, GradScaler& scaler, Schedule* schedule,
            const TrainStepOptions& options = {})
      : TrainStep(static_cast<Module&>(module), loss, optimizer, scaler, schedule, options) {
    forward_of_several_ = train_step::forward_of_several<M>;
  }
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Runs forward, backward and, at the end of a window, the optimizer's step. An optimizer that evaluates the loss itself (LBFGS)
  // does so on this batch, without a scaler, clipping or accumulation; the result is that of its first evaluation. Buffers that
  // forward writes change with applied steps only (state_rollback.h). A window in which no target counts (Loss::denominator) is
  // skipped.
  //
  // With a group, `part` gives the position of these rows in the whole batch; without `part`, every rank has the same number of
  // rows. Rank 0 has the most rows; for an empty part, input and target are ignored. The loss of the result is then that of the
  // window on all ranks, defined at its end. Throws ValueError if the ranks disagree about the samples of a window.
  //
  // Gradients stay in place until the next window begins, multiplied by a scaler's scale. The norm is clipped in the optimizer's
  // pass, so they are not clipped either. They are unscaled and clipped in memory if the step also clips in another way, if the
  // optimizer does not handles_amp(), and if a parameter is in 16 bits.
  // If the step neither clips nor accumulates, gradients of parameters that autocast lowered keep its dtype, on every device: 16
  // bits from the product to the optimizer. So they are rounded, and may overflow, like PyTorch's. grad() converts them to
  // float32.
  //
  // On a GPU nothing here waits for the device, even if the schedule counts skipped steps (optim/device_rates.h), and whole steps
  // are recorded once and replayed (step_recorder.h) if that is faster. Both give the bits of eager steps.
  StepResult operator()(const Tensor& input, const Tensor& target, const std::optional<BatchRows>& part = {});
  // Steps a module with up to 6 inputs, whose first dimension is the batch. Such steps are not recorded: they run eagerly, also on
  // a GPU. Throws ValueError for a module whose forward does not take this many tensors and return one.
  StepResult operator()(const Tensors& inputs, const Tensor& target, const std::optional<BatchRows>& part = {});
  template <std::derived_from<Tensor>... T>
  StepResult operator()(const Tensor& first, const Tensor& second, const Tensor& third, const T&... more) {
    Tensors inputs{first, second, third, more...};
    const Tensor target = std::move(inputs.back());
    inputs.pop_back();
    return (*this)(inputs, target);
  }
  // Takes the last tensor of a batch as the target.
  template <std::derived_from<Tensor>... T>
  StepResult operator()(const std::tuple<T...>& batch) {
    static_assert(sizeof...(T) >= 2, "TrainStep: a batch has at least an input and a target");
    return std::apply(*this, batch);
  }
  // Steps on the number that `loss` computes in the autocast region, instead of the module's forward and the constructor's loss;
  // the result has no output. Such steps are not recorded. `denominator`: of the loss, such as the number of tokens that
  // count; if unset, the rows of `part`, and without `part` all calls of a window weigh the same.
  StepResult operator()(const std::function<Tensor()>& loss, const std::optional<BatchRows>& part = {},
                        std::optional<double> denominator = {});
  // Steps with the accumulated gradients; does nothing if there are none.
  StepResult flush();
  // Returns the number of micro-batches in the open window. Checkpoints are exact if it is 0.
  int64_t pending() const { return window_.pending(); }
  // Sends bits to the other ranks with the next step that ends a window; notices() returns the bits that any rank sent with the
  // last one.
  void notify(uint32_t bits) {
    if (ranks_) ranks_->notify(bits);
  }
  uint32_t notices() const { return ranks_ ? ranks_->notices() : 0; }
  // Keeps, from the next step on, a description of each step, its inputs included, until the one after it begins. Waits for the
  // scale.
  void keep_step(bool keep);
  // Returns the last step, if it was kept. It can be computed as long as nothing has changed the parameters since, as after a
  // skipped step.
  const std::optional<StepUnderTest>& kept_step() const { return kept_step_; }
  // Describes a step on one micro-batch, for diagnose() and the like, and computes nothing. With a group: on the rows of this
  // rank.
  StepUnderTest described(const Tensor& input, const Tensor& target, const std::optional<BatchRows>& part = {});
  // Returns whether steps are being replayed, for reports.
  bool is_recorded() const { return recorder_ && recorder_->is_recorded(); }

 private:
  Optimizer& optimizer() const { return optimizer_.get("TrainStep", "optimizer"); }
  GradScaler& scaler() const { return scaler_.get("TrainStep", "scaler"); }
  Schedule& schedule() const { return schedule_->get("TrainStep", "schedule"); }
  void check_options() const;
  bool may_record() const;
  BatchRows rows_of(const Tensor& input, const std::optional<BatchRows>& part) const;
  // The computation of a step in the region: the module's output, which may be undefined, and the loss.
  struct Work {
    std::function<std::pair<Tensor, Tensor>(const Tensor& seed)> forward;  // seed: see Loss::with_seed
    Tensors inputs = {}, targets = {};                                     // if known
    bool on_device = false;                                                // the inputs are on the region's device
    Denominator denominator = 0.0;                                         // of the loss
  };
  // `ring`: second destination of the loss and found_inf (math::StepTail), or null.
  StepResult eager(const Tensor& input, const Tensor& target, const BatchRows& part, math::ResultRing* ring);
  StepResult eager(const Work& work, const BatchRows& part, math::ResultRing* ring);
  StepResult by_closure(const Work& work);
  StepResult compute(const Work& work, const BatchRows& part);
  Work work_of(const Tensor& input, const Tensor& target, const BatchRows& part);
  Denominator denominator_of(const Tensor& target, const BatchRows& part) const;
  StepResult without_targets();      // ends a window in which no target counts; returns its result
  StepUnderTest step_without_batches() const;
  TestedBatch describe_batch(const Work& work, const BatchRows& part) const;
  void keep_batch(const Work& work, const BatchRows& part);
  StepResult finish_window(math::ResultRing* ring = nullptr, const Tensor& loss = {});
  Tensor apply_gradient_factor();
  AutocastOptions region_options() const;
  bool clips() const;
  bool keeps_low_gradients() const;
  bool clips_in_update() const;
  Tensor clip();

  Module& module_;
  train_step::ForwardOfSeveral forward_of_several_ = nullptr;
  const Loss& loss_;
  Watched<Optimizer> optimizer_;
  Watched<GradScaler> scaler_;
  std::optional<Watched<Schedule>> schedule_;
  TrainStepOptions options_;
  AccumulationWindow window_;
  StateRollback states_;
  bool keeps_step_ = false;
  std::optional<StepUnderTest> kept_step_;
  Tensor window_loss_;                   // the sum of the micro-batches' losses so far, if the scaler uses it
  std::unique_ptr<RankExchange> ranks_;  // with a group
  std::unique_ptr<DeviceRates> rates_;
  std::unique_ptr<StepRecorder> recorder_;
};

}  // namespace halfstep
