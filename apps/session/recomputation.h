// SPDX-License-Identifier: Apache-2.0
// What a run computes again in backward where the plan chooses it: train.memory_budget, and train.checkpoint_activations "auto".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "amp/step/recomputation.h"
#include "apps/config/config.h"
#include "framework/comm/process_group.h"

namespace halfstep::app {

struct Recomputation {
  RecomputationPlan plan;
  double budget = 0;      // bytes; 0: not known, and nothing is chosen
  std::string budget_is;  // "train.memory_budget", "90 % of the free memory of this machine"
};

// Bytes that tensors could take on a device now; 0: not known.
double device_memory(Device device);

// Nothing where the config leaves no choice. batch: as of planned_batch. Without train.memory_budget the budget is 90 % of
// device_memory, and where no choice fits, the one with the smallest peak is taken. With a group, all ranks must call it: the ranks
// of a machine share its memory, and rank 0's choice is that of all; `batch` are its samples. Throws MemoryError when
// train.memory_budget cannot be met.
std::optional<Recomputation> choose_recomputation(const Config& config, int64_t batch = 0, ProcessGroup* group = nullptr);

// One sentence: budget, modules, peak before and after, repeated operations.
std::string text(const Recomputation& chosen);
Json to_json(const Recomputation& chosen);

}  // namespace halfstep::app
