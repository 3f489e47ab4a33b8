// SPDX-License-Identifier: Apache-2.0
// What a training step of a config would do, found by running one on Device::meta: through the real layers, autocast, backward,
// scaler and optimizer, with nothing computed.
#pragma once

#include <array>
#include <iosfwd>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/session/recomputation.h"
#include "framework/backend/op_log.h"
#include "framework/tensor/memory.h"

namespace halfstep::app {

struct StepPlan {
  std::string name;
  Device device;             // that the step is for
  std::optional<DType> low;  // of mixed precision
  int64_t batch = 0;         // samples of this process
  int ranks = 1;             // of several, all is rank 0's
  double sent_bytes = 0;     // to the other ranks, in a step
  int64_t parameters = 0;
  std::vector<LayerRow> layers;
  std::vector<LoggedCall> calls;  // of a step in the middle of a run: weights have their 16-bit copies, the optimizer its state
  // Memory of the device, without the data set: parameters, one batch and the step. The cpu's are what its allocator will count,
  // workspace included; a GPU's are without the workspace of its libraries.
  MemoryStats first, middle;                   // peaks of the run's first step, and of those that follow
  size_t peak_call = 0;                        // of `calls`: where the middle's peak is reached
  std::optional<Recomputation> recomputation;  // if the plan chooses: all else is with it

  std::array<double, kDTypeCount> flops() const;  // by dtype
  double total_flops() const;
  double low_share() const;  // of the operations: in 16 bits
  int64_t casts() const;
  double cast_bytes() const;  // read and written
};

// batch: of all ranks; 0: the config's. Throws DataError when data that shapes depend on is missing, MemoryError when no step fits
// into train.memory_budget, and everything that the step throws.
StepPlan plan_step(const Config& config, int64_t batch = 0, int ranks = 1);

// Layers, memory by purpose, operations and casts. width: of the terminal; 0: no limit.
void print_summary(std::ostream& out, const StepPlan& plan, size_t width = 0);
// The summary as JSON; with `calls`, each on a line of its own when it is written by write_plan.
Json plan_json(const StepPlan& plan);
Json calls_json(const StepPlan& plan);
// A text that a line-by-line comparison of two plans reads well.
std::string plan_text(const StepPlan& plan);
// A row for each call that computes or moves something, and the others counted. For a terminal the reasons are below the table.
void print_calls(std::ostream& out, const StepPlan& plan, size_t width = 0);

}  // namespace halfstep::app
