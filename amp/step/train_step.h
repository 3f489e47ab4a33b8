// SPDX-License-Identifier: Apache-2.0
// One training step: forward and loss under autocast, scaled backward, clipping, update. What the trainer runs per batch.
//
//   TrainStep step(net, loss_fn, opt, scaler, &schedule, {.amp = true, .dtype = DType::f16, .clip_grad_norm = 1});
//   for (batch : loader) { StepResult r = step(batch.input, batch.target); }
//   step.flush();  // at the end of an epoch
//
// Accumulation. The gradient of a window of micro-batches is that of its samples as one batch: sum_i n_i grad(loss_i) / sum_i n_i,
// exact also when batches differ in size or flush() ends the window early. Each loss is weighted n_i / (k n_1), with n_1 the
// window's first batch; if the window turns out otherwise, its gradients are multiplied by k n_1 / sum_i n_i before clipping.
// This takes a loss that is a mean over samples (dimension 0 of the input).
//
// Buffers that forward writes to, such as running statistics, move with applied steps only: where the scaler skips one, a select on
// the device restores their values from the beginning of the window. PyTorch lets infinite activations of a skipped step into them.
//
// Random numbers of a window are those of its samples as one batch (framework/base/draws.h): a dropout mask does not depend on how many
// micro-batches, or ranks, it is computed in.
//
// Ranks. With a group, every rank computes its part of each batch, and the step is that of the whole batch: gradients are summed
// over the ranks in a window's last backward, before clipping and the scaler's test, which then find the same everywhere. N ranks
// give the very bits of one that accumulates N micro-batches, each of which is what one rank had. A rank whose part is empty joins
// in without computing.
//
// On a GPU nothing here waits for the device, whatever the schedule does about skipped steps (optim/device_rates.h), and whole
// steps are recorded once and replayed (amp/step/step_recorder.h) where that is faster. Both give the bits of eager steps. Those of ranks
// are where the group can record (over NCCL); an eager one of theirs waits for the device, a replayed one does not.
//
// Gradients after a step. With a scaler they stay multiplied by its scale unless the step clipped. Those of parameters that
// autocast lowered are kept in its dtype, on every device, when the step neither clips nor accumulates: 16 bits from the product to
// the optimizer. So they are rounded, and may overflow, as PyTorch's are. grad() converts them to float32 when it is asked.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "amp/step/grad_scaler.h"
#include "amp/step/step_recorder.h"
#include "framework/base/draws.h"
#include "framework/parallel/gradient_reducer.h"
#include "layers/layers.h"
#include "optim/device_rates.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace halfstep {

struct TrainStepOptions {
  Device device = Device::cpu;   // of the autocast region
  bool amp = false;              // autocast on
  DType dtype = DType::bf16;     // its low dtype
  double clip_grad_norm = 0;     // 0: off; for true (unscaled) gradients, as the next
  double clip_grad_value = 0;    // 0: off
  double clip_grad_agc = 0;      // 0: off; the factor of clip_grad_agc_, which comes first
  bool grad_norm = false;        // say the norm of the gradients, before clip_grad_norm scales them, also where it does not
  int64_t accumulate_steps = 1;  // micro-batches a step
  GraphMode graph = GraphMode::automatic;  // of a device that can record; needs accumulate_steps 1
  ProcessGroup* group = nullptr;           // of ranks that train one model; must outlive the step
  ReducerOptions reducer = {};             // how they exchange gradients
};

class TrainStep {
 public:
  // All arguments must outlive it; `schedule` may be null. Throws ValueError for options outside their domain.
  TrainStep(Module& module, const Loss& loss, Optimizer& optimizer, GradScaler& scaler, Schedule* schedule,
            const TrainStepOptions& options = {});

  // Forward, backward and, at the end of a window, the step. An optimizer that evaluates the loss itself (LBFGS) does so on this batch,
  // without a scaler, clipping or accumulation; the result is that of its first evaluation. Gradients stay in place until the next window begins.
  //
  // With a group, `part` says which rows of the whole batch these are; left out, every rank gives equally many. Rank 0 has as many
  // as any, and of an empty part input and target are not looked at. The loss of the result is then that of the window on all
  // ranks, and there where it ends. Throws ValueError where the ranks do not agree about the samples of a window.
  StepResult operator()(const Tensor& input, const Tensor& target, const std::optional<BatchRows>& part = {});
  // Steps with the accumulated gradients; does nothing when there are none.
  StepResult flush();
  // Micro-batches in the open window. Checkpoints are exact where it is 0.
  int64_t pending() const { return pending_; }
  // Bits for the other ranks, sent with the next step that ends a window, and those that any rank sent with the last one.
  void notify(uint32_t bits) { notice_ = bits; }
  uint32_t notices() const { return notices_; }
  // Are steps being replayed? For reports.
  bool is_recorded() const { return recorder_ && recorder_->is_recorded(); }

 private:
  // `ring`: where the loss and found_inf go as well (math::StepTail), or null.
  StepResult eager(const Tensor& input, const Tensor& target, const BatchRows& part, math::ResultRing* ring);
  BatchRows checked(const Tensor& input, const std::optional<BatchRows>& part) const;
  StepResult compute(const Tensor& input, const Tensor& target, const BatchRows& part, bool recording);
  int agree(int readiness, const BatchRows& part);
  Tensor exchange();
  Tensor exchange_recorded(const Tensor& loss);
  StepResult by_closure(const Tensor& input, const Tensor& target);
  StepResult finish_window(math::ResultRing* ring = nullptr, const Tensor& loss = {});
  bool clips() const;
  void keep_buffers();
  void settle_buffers(const Tensor& found_inf);

  Module& module_;
  const Loss& loss_;
  Optimizer& optimizer_;
  GradScaler& scaler_;
  Schedule* schedule_;
  TrainStepOptions options_;
  int64_t pending_ = 0;  // micro-batches in the window
  int64_t first_ = 0;    // samples of its first one, on rank 0
  int64_t whole_ = 0;    // samples of its first one, on all ranks
  int64_t samples_ = 0;  // samples in it, on all ranks
  Generator::State random_;  // where the window's numbers begin
  double loss_sum_ = 0;      // of this rank's samples in the window
  int64_t mine_ = 0;         // these samples
  uint32_t notice_ = 0, notices_ = 0;
  bool syncs_ = false;  // a layer reaches across ranks
  std::unique_ptr<GradientReducer> reducer_;
  struct Buffer {
    Tensor tensor;
    Tensor before = {};    // its values when the window began
    uint64_t version = 0;  // then
    bool moves = true;     // did the last window write to it? else its values are not kept in the next one
  };
  std::optional<std::vector<Buffer>> buffers_;  // of the module, since the first window
  std::unique_ptr<DeviceRates> rates_;
  std::unique_ptr<StepRecorder> recorder_;
};

}  // namespace halfstep
