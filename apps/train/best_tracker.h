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

  // Continues a run: forgets best checkpoints that were removed; the next evaluation marks one. best: the step of the folder's
  // `best`.
  void continue_from(int64_t best);
  // Marks a checkpoint of this moment as one of the best if `what` is monitored and its value is good enough. samples: of a share.
  void consider(const std::string& what, std::optional<double> value, int64_t samples = 0);

 private:
  void agree();  // takes rank 0's list: only rank 0 reads the folder

  RunContext& run_;
  CheckpointSaver& saver_;
};

}  // namespace halfstep::app
