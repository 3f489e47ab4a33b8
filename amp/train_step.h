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
// the device puts back what they were when the window began. PyTorch lets infinite activations of a skipped step into them.
//
// On a GPU nothing here waits for the device, whatever the schedule does about skipped steps (optim/device_rates.h), and whole
// steps are recorded once and replayed (amp/step_recorder.h) where that is faster. Both give the bits of eager steps.
//
// Gradients after a step. With a scaler they stay multiplied by its scale unless the step clipped. Those of parameters that
// autocast lowered are kept in its dtype, on every device, when the step neither clips nor accumulates: 16 bits from the product to
// the optimizer. So they are rounded, and may overflow, as PyTorch's are. grad() converts them to float32 when it is asked.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "amp/grad_scaler.h"
#include "amp/step_recorder.h"
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
};

class TrainStep {
 public:
  // All arguments must outlive it; `schedule` may be null. Throws ValueError for options outside their domain.
  TrainStep(Module& module, const Loss& loss, Optimizer& optimizer, GradScaler& scaler, Schedule* schedule,
            const TrainStepOptions& options = {});

  // Forward, backward and, at the end of a window, the step. An optimizer that evaluates the loss itself (LBFGS) does so on this batch,
  // without a scaler, clipping or accumulation; the result is that of its first evaluation. Gradients stay in place until the next window begins.
  StepResult operator()(const Tensor& input, const Tensor& target);
  // Steps with what has been accumulated; does nothing when nothing has.
  StepResult flush();
  // Micro-batches in the open window. Checkpoints are exact where it is 0.
  int64_t pending() const { return pending_; }
  // Are steps being replayed? For reports.
  bool is_recorded() const { return recorder_ && recorder_->is_recorded(); }

 private:
  // `ring`: where the loss and found_inf go as well (math::StepTail), or null.
  StepResult eager(const Tensor& input, const Tensor& target, math::ResultRing* ring);
  StepResult by_closure(const Tensor& input, const Tensor& target);
  StepResult finish_window(math::StepTail tail = {});
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
  int64_t first_ = 0;    // samples of its first one
  int64_t samples_ = 0;  // samples in it
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
