// SPDX-License-Identifier: Apache-2.0
// Plans a training step of a config by running it on Device::meta: through the real layers, autocast, backward, scaler and
// optimizer, without computing.
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
  Device device;             // device of the step
  std::optional<DType> low;  // of mixed precision
  int64_t batch = 0;         // samples in this process
  int ranks = 1;             // with several, all values are rank 0's
  double sent_bytes = 0;     // to the other ranks, in a step
  int64_t parameters = 0;
  std::vector<LayerRow> layers;
  std::vector<LoggedCall> calls;  // of a step after the first: 16-bit copies and optimizer states exist
  // Memory of the device without the data set: parameters, one batch and the step. For a CPU as its allocator will count it,
  // workspace included; for a GPU without its libraries' workspace.
  MemoryStats first_step, later_steps;         // peaks of the run's first step, and of later ones
  size_t peak_call = 0;                        // index in `calls` of the peak of `later_steps`
  std::optional<Recomputation> recomputation;  // unset: the config chose; all other members include it

  std::array<double, kDTypeCount> flops() const;  // by dtype
  double total_flops() const;
  double low_share() const;  // share of the operations in 16 bits
  int64_t casts() const;
  double cast_bytes() const;  // read and written
};

// Plans a step. batch: of all ranks; 0: the config's. Throws DataError if data that shapes depend on is missing, MemoryError if no
// step fits into train.memory_budget, and everything that the step throws.
StepPlan plan_step(const Config& config, int64_t batch = 0, int ranks = 1);

// Prints layers, memory by purpose, operations and casts. width: of the terminal; 0: no limit.
void print_summary(std::ostream& out, const StepPlan& plan, size_t width = 0);
// Returns the summary as JSON.
Json plan_json(const StepPlan& plan);
// Returns the calls as JSON.
Json calls_json(const StepPlan& plan);
// Returns plan_json and calls_json as one JSON object, with each call on a line of its own, for comparison of two plans by lines.
std::string plan_text(const StepPlan& plan);
// Prints a row for each call that computes or moves something, and counts the others. width: of the terminal, where the reasons
// follow the table; 0: no limit, and the table has a column of them.
void print_calls(std::ostream& out, const StepPlan& plan, size_t width = 0);

}  // namespace halfstep::app
