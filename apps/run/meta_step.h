// SPDX-License-Identifier: Apache-2.0
// The training step of a config on Device::meta: the real layers, autocast, backward, scaler and optimizer, with nothing computed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "amp/step/recomputation.h"
#include "amp/step/train_step.h"
#include "apps/catalog/infer.h"
#include "apps/config/config.h"
#include "framework/tensor/memory.h"

namespace halfstep::app {

// The samples of a planned step: `batch`, or for 0 those of a batch of the config.
int64_t planned_batch(const Config& config, int64_t batch = 0);

// Tensors are made on Device::meta while it lives, and its memory is counted as the config's device would.
class MetaStep {
 public:
  // `recomputed`: modules that compute again in backward besides those that the config names. Throws DataError when data that
  // shapes depend on is missing. `group`: of ranks, which may share the optimizer's states; nothing is exchanged.
  MetaStep(const Config& config, int64_t batch, const std::vector<std::string>& recomputed = {}, ProcessGroup* group = nullptr);
  // One optimizer step. Results are kept as a trainer keeps them until it reads the losses.
  void run();
  // The same, but only the results of the first step are kept besides, as if it were the second.
  void run_as_second();
  // Since the last reset_peak of the allocator of Device::meta, without what others hold there.
  MemoryStats peak() const { return peak_without(allocator(Device::meta).stats(), others_); }
  const MemoryStats& others() const { return others_; }
  Module& model() { return *model_; }

 private:
  struct Pending {
    Tensor loss;
    StepOutcome outcome;
  };

  const DataFacts& facts_;
  int64_t batch_;
  SavedGenerator generator_;
  PlanFor target_;
  DefaultDevice on_;
  MemoryStats others_;
  std::shared_ptr<Module> model_;
  std::unique_ptr<Loss> loss_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::unique_ptr<Optimizer::Follower>> followers_;
  GradScaler scaler_;
  TrainStepOptions options_;
  std::unique_ptr<TrainStep> step_;
  std::vector<Pending> pending_;
};

}  // namespace halfstep::app
