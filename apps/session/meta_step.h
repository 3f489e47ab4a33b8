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
#include "framework/comm/meta_group.h"
#include "framework/tensor/memory.h"

namespace halfstep::app {

// The samples of a planned step: `batch`, or for 0 those of a batch of the config.
int64_t planned_batch(const Config& config, int64_t batch = 0);
// Those of rank 0, which no other rank exceeds.
inline int64_t part_of_rank(int64_t batch, int64_t ranks) { return (batch + ranks - 1) / ranks; }

// Tensors are made on Device::meta while it lives, and its memory is counted as the config's device would.
class MetaStep {
 public:
  // `recomputed`: modules that compute again in backward besides those that the config names. Throws DataError when data that
  // shapes depend on is missing. ranks: of several, the step is rank 0's, and `batch` are its samples.
  MetaStep(const Config& config, int64_t batch, const std::vector<std::string>& recomputed = {}, int ranks = 1);
  // One optimizer step. Results are kept as a trainer keeps them until it reads the losses.
  void run();
  // The same, but only the results of the first step are kept besides, as if it were the second.
  void run_as_second();
  // Since the last reset_peak of the allocator of Device::meta, without what others hold there.
  MemoryStats peak() const { return peak_without(allocator(Device::meta).stats(), others_); }
  const MemoryStats& others() const { return others_; }
  Module& model() { return *model_; }
  double sent_bytes() const { return group_ ? group_->sent_bytes() : 0; }  // by this rank, in all steps so far

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
  std::unique_ptr<MetaGroup> group_;  // null: one process
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
