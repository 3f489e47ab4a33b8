// SPDX-License-Identifier: Apache-2.0
// Keeps the best checkpoints of a run (apps/session/best.h). The checkpoint itself stores which ones are best, so that a run that
// dies before `best` is written finds it again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/train/checkpoint_saver.h"
#include "apps/train/run_context.h"

namespace halfstep::app {

class BestTracker {
 public:
  BestTracker(RunContext& run, CheckpointSaver& saver) : run_(run), saver_(saver) {}

  // Continues a run: forgets best checkpoints that were removed, and all if the folder's `best` is another one; the next evaluation
  // marks one. best_step: that of the folder's `best`.
  void continue_from(int64_t best_step);
  // Saves this moment, and marks its checkpoint as one of the best, if `metric` is monitored and its value is good enough.
  // samples: of a share (see BestRule); 0: the value is none.
  void consider(const std::string& metric, std::optional<double> value, int64_t samples = 0);

 private:
  void take_first_list();  // replaces the list by that of rank 0, which alone reads the folder

  RunContext& run_;
  CheckpointSaver& saver_;
};

}  // namespace halfstep::app
