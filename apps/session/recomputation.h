// SPDX-License-Identifier: Apache-2.0
// Chooses the modules that recompute in backward: for train.memory_budget, and for train.checkpoint_activations "auto".
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
  double budget = 0;      // bytes; 0: unknown, and nothing is chosen
  std::string budget_is;  // its origin: "train.memory_budget", "90 % of the free memory of this machine"
};

// Returns the free bytes of a device's memory, or of the machine's for a CPU; 0: unknown.
double free_device_memory(Device device);

// Chooses modules; nothing if the config leaves no choice. batch: see planned_batch. Without train.memory_budget the budget is 90
// % of free_device_memory, and if no choice fits, it takes the one with the smallest peak. With a group, all ranks must call it:
// the ranks of a machine share its memory, and all use rank 0's choice; `batch` is rank 0's number of samples. Throws MemoryError
// if train.memory_budget cannot be met.
std::optional<Recomputation> choose_recomputation(const Config& config, int64_t batch = 0, ProcessGroup* group = nullptr);

// Describes the choice in one sentence: budget, modules, peak before and after, repeated operations.
std::string text(const Recomputation& chosen);
Json to_json(const Recomputation& chosen);

}  // namespace halfstep::app
