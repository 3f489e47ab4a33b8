// SPDX-License-Identifier: Apache-2.0
// A training step recorded once and replayed: the host queues one CUDA graph instead of dozens of kernels.
//
// The first kWarmup steps of a batch shape run eagerly. The next is recorded, with input and target in separate memory, and later
// steps replay it. A batch on the device is read in place if only kernels of halfstep read it (autocast's cast of the input, a
// loss); otherwise, for example if a library's product reads it, it is first copied to that memory. Batches of another shape run
// eagerly in between. After a change that a recording cannot follow (a parameter's memory, a weight written by the user, train()
// and eval(), the scaler's factors), the step is recorded again after another warm-up. A step that cannot be recorded stays eager,
// and one log line gives the reason: it reads values on the host, copies from the host, or draws from a generator of its own. If a
// library must prepare something first (for a convolution of a new kind), an eager step does so, and the recording is made later.
// Host code runs when a step is recorded but not when it is replayed; while a module has hooks, steps run eagerly.
//
// All ranks record, replay, discard and compute eagerly together, since a replayed step exchanges gradients in its graph. Before
// each step they agree on the least ready rank's choice (`agree`), after an attempt to record on whether all succeeded, and after
// the timed steps on the slowest rank's times. So they agree on all changes of a recorder's state.
//
// Losses and outcomes of replayed steps go to a ring buffer of kRing elements, which the recorded step itself fills. When it is
// full, a new one is allocated, so that results that the caller holds are never overwritten.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "amp/step/grad_scaler.h"
#include "framework/backend/backend.h"
#include "framework/base/draws.h"
#include "framework/comm/process_group.h"
#include "layers/feedforward/losses.h"
#include "layers/module/module.h"
#include "optim/device_rates.h"

namespace halfstep {

// automatic: records modules and losses that are recordable (Module::is_recordable), times kTimed eager and kTimed replayed steps,
// each from an idle device to an idle device, and replays only if that was faster.
enum class GraphMode : uint8_t { off, automatic, on };

struct StepResult {
  Tensor loss;             // 0-dim, detached: of this micro-batch, neither scaled nor weighted; undefined from flush()
  Tensor output;           // of the module, detached; overwritten by the next step when steps are replayed; undefined from flush()
  bool stepped = false;    // this call ended a window and called the optimizer
  StepOutcome outcome;     // meaningful when stepped: applied, or skipped for overflow, or because no target counts
  bool no_target = false;  // skipped because no target of the window counts: all are ignored, or of weight 0
  // Of the loss; with a group, that of the window. Not set for a step on a GPU whose window is one batch.
  Denominator denominator = 0.0;
  Tensor grad_norm;  // 0-dim: norm of the gradients before clipping, if requested; overwritten like output
};

class StepRecorder {
 public:
  static constexpr int kWarmup = 3;
  static constexpr int kPreparations = 4;                    // recordings that may meet unprepared work before it gives up
  static constexpr int kTimed = 4;                           // automatic: eager steps after the warm-up, replays after the first
  static constexpr int kDecided = kWarmup + 2 * kTimed + 1;  // steps after which it chooses
  static constexpr int64_t kRing = 256;                      // steps whose results a ring holds
  // `ring`: destination of the step's loss and found_inf, in device memory; null outside a recording.
  using EagerStep =
      std::function<StepResult(const Tensor& input, const Tensor& target, const BatchRows& part, math::ResultRing* ring)>;
  // Takes this rank's readiness and returns the least of all ranks.
  using Agree = std::function<int(int readiness, const BatchRows& part)>;

  // The shortest of kTimed steps, eager and replayed, in seconds.
  struct StepTimes {
    double eager, replayed;
    bool replaying_pays() const { return replayed < eager; }
  };

  // Takes the whole eager step. All references, and the group, must outlive the recorder. `agree` is called if there is a group
  // that can record.
  StepRecorder(EagerStep step, Module& module, Optimizer& optimizer, GradScaler& scaler, DeviceRates& rates, Device device,
               GraphMode mode, ProcessGroup* group = nullptr, Agree agree = {});
  ~StepRecorder();

  StepResult operator()(const Tensor& input, const Tensor& target, const BatchRows& part);
  bool is_recorded() const { return recording_ != nullptr; }
  const StepTimes& times() const { return times_; }  // infinite before they are measured

 private:
  struct WatchedTensor {
    Tensor tensor, grad;
    void *data, *shadow;  // shadow: of the 16-bit copy, or null
    uint64_t version;
    bool requires_grad, stepped;
  };
  // States of a rank for a batch, the least ready first: only an eager step; eager, and the recording is no longer valid; eager,
  // for a batch unlike the last ones; ready for the next phase.
  enum Readiness { kEager, kChanged, kOther, kReady };
  Readiness readiness(const Tensor& input, const Tensor& target, const BatchRows& part) const;
  StepResult time_step(int& steps, double& shortest, const std::function<StepResult()>& step);
  bool record(const Tensor& input, const Tensor& target, const BatchRows& part);
  void gather_problems(std::string& problem, bool& unprepared) const;
  void watch_tensors();
  bool is_valid() const;
  std::vector<double> settings() const;
  void copy_input(size_t i, const Tensor& from, const Tensor& to);
  StepResult replay(const Tensor& input, const Tensor& target);
  void allocate_ring();
  void discard();
  void abandon(bool begun);

  EagerStep step_;
  Module& module_;
  Optimizer& optimizer_;
  GradScaler& scaler_;
  DeviceRates& rates_;
  Backend& backend_;
  Device device_;
  GraphMode mode_;
  ProcessGroup* group_;
  Agree agree_;
  bool given_up_ = false;
  int unprepared_ = 0;                 // recordings that met work which an eager step has to prepare
  int warm_up_steps_ = 0;              // done
  bool decided_;                       // nothing is timed any more
  int timed_eager_ = 0, replays_ = 0;  // automatic: counts of timed and replayed steps
  StepTimes times_;
  Tensor input_, target_;  // the batch that a recording reads; before it, the warm-up's batch
  BatchRows part_;         // of both
  uint64_t seed_ = 0;      // of the generator when it was recorded
  std::vector<WatchedTensor> watched_;
  std::vector<double> settings_;
  StepResult recorded_;         // in the recording's memory
  bool keeps_[2] = {};          // the step keeps its input, its target beyond its end: it must stay where it was read
  Tensor ring_;                 // a math::ResultRing
  Tensor losses_, found_infs_;  // memory to which it points
  int64_t used_slots_ = 0;      // elements of these in use
  std::unique_ptr<Recording> recording_;
};

}  // namespace halfstep
