// A training step recorded once and replayed: the host queues one CUDA graph instead of dozens of kernels.
//
// The first kWarmup steps of a batch shape run eagerly. The next is recorded, with input and target in memory of its own, and from
// then on a step copies the batch there and replays. Batches of another shape run eagerly in between. When something changes
// that a recording cannot follow (a parameter's memory, a weight written by the user, train() and eval(), the scaler's
// factors), it is made anew after another warm-up. A step that cannot be recorded stays eager, with one log line that says why:
// it reads values on the host, copies from the host, or draws from a generator of its own. Code of the host, hooks included, runs
// when a step is recorded and not when it is replayed.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "amp/grad_scaler.h"
#include "framework/backend/backend.h"
#include "layers/module.h"
#include "optim/device_rates.h"

namespace halfstep {

// automatic: records modules and losses that are recordable (Module::is_recordable), unless the warm-up shows that the device, not
// the host, is what a step waits for; then replaying would only add the copy of the batch.
enum class GraphMode : uint8_t { off, automatic, on };

struct StepResult {
  Tensor loss;           // 0-dim, detached: of this micro-batch, neither scaled nor weighted; undefined from flush()
  Tensor output;         // of the module, detached; overwritten by the next step when steps are replayed; undefined from flush()
  bool stepped = false;  // this call ended a window: the optimizer was called
  StepOutcome outcome;   // meaningful when stepped: applied, or skipped for overflow
  Tensor grad_norm;  // 0-dim: the norm that clip_grad_norm bounds, before it did; undefined without it; overwritten as output is
};

class StepRecorder {
 public:
  static constexpr int kWarmup = 3;
  using Step = std::function<StepResult(const Tensor& input, const Tensor& target)>;

  // `step` is the whole eager step. All references must outlive the recorder.
  StepRecorder(Step step, Module& module, Optimizer& optimizer, GradScaler& scaler, DeviceRates& rates, Device device,
               GraphMode mode);
  ~StepRecorder();

  StepResult operator()(const Tensor& input, const Tensor& target);
  bool is_recorded() const { return recording_ != nullptr; }

 private:
  struct Watched {
    Tensor tensor, grad;
    void *data, *shadow;  // shadow: of the 16-bit copy, null where there is none
    uint64_t version;
    bool requires_grad, stepped;
  };
  bool fits(const Tensor& input, const Tensor& target) const;
  StepResult warm_up(const Tensor& input, const Tensor& target);
  bool record(const Tensor& input, const Tensor& target);
  bool still_true() const;
  std::vector<double> settings() const;
  StepResult replay(const Tensor& input, const Tensor& target);
  void forget();
  void abandon(bool begun);

  Step step_;
  Module& module_;
  Optimizer& optimizer_;
  GradScaler& scaler_;
  DeviceRates& rates_;
  Backend& backend_;
  Device device_;
  GraphMode mode_;
  bool given_up_ = false;
  int warm_ = 0;
  Tensor input_, target_;  // where a recording reads the batch; before it, what the warm-up ran with
  std::vector<Watched> watched_;
  std::vector<double> settings_;
  StepResult recorded_;  // in the recording's memory
  std::unique_ptr<Recording> recording_;
};

}  // namespace halfstep
