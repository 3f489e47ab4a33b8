// SPDX-License-Identifier: Apache-2.0
// Runs the training step of a config on Device::meta: the real layers, autocast, backward, scaler and optimizer, without
// computing.
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
#include "framework/backend/dnn.h"
#include "framework/comm/meta_group.h"
#include "framework/tensor/memory.h"

namespace halfstep::app {

// Returns the samples of a planned step: `batch`, or for 0 the config's batch.
int64_t planned_batch(const Config& config, int64_t batch = 0);
// Returns the samples of rank 0, which has the most.
inline int64_t part_of_rank(int64_t batch, int64_t ranks) { return (batch + ranks - 1) / ranks; }

// While it lives, plans are for the config's device and its options of cuDNN, which determine how a GPU divides attention.
class PlannedDevice {
 public:
  [[nodiscard]] explicit PlannedDevice(const Config& config);
  ~PlannedDevice() { set_dnn_options(before_); }
  PlannedDevice(const PlannedDevice&) = delete;
  bool is_gpu() const { return is_gpu_; }

 private:
  bool is_gpu_;
  PlanFor type_;
  DnnOptions before_ = dnn_options();
};

// Creates tensors on Device::meta while it lives, and counts their memory as the config's device would.
class MetaStep {
 public:
  // recomputed: modules that recompute in backward, in addition to the config's. ranks: with several, the step is rank 0's, and
  // `batch` is its number of samples. Throws DataError if data that shapes depend on is missing.
  MetaStep(const Config& config, int64_t batch, const std::vector<std::string>& recomputed = {}, int ranks = 1);
  // Runs one optimizer step. Keeps results as a trainer does until it reads the losses.
  void run();
  // Runs a step, but keeps only the results of the first step beside its own, as if it were the second.
  void run_as_second();
  // Returns the peak since the last reset_peak of Device::meta's allocator, without the memory that existed before this object.
  MemoryStats peak() const { return peak_without(allocator(Device::meta).stats(), others_); }
  const MemoryStats& others() const { return others_; }  // memory that existed before this object
  Module& model() { return *model_; }
  double sent_bytes() const { return group_ ? group_->sent_bytes() : 0; }  // by this rank, in all steps so far

 private:
  struct Pending {
    Tensor loss;
    StepOutcome outcome;
  };

  struct BatchTensors {
    Tensor input, target;
  };
  struct Batches {
    const DataFacts& facts;
    int64_t size;
    BatchTensors make() const;
  };
  bool may_be_recorded() const;

  Batches batches_;
  SavedGenerator generator_;
  PlannedDevice target_;
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
  BatchTensors recorded_;  // the copy of the batch that a recording has
};

}  // namespace halfstep::app
