// SPDX-License-Identifier: Apache-2.0
// Keeps the best checkpoints of a run (apps/session/best.h). Which ones are the best is in the checkpoint itself, so that a run
// that dies before `best` is written finds it again.
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

  // Of a run that continues: forgets those whose checkpoint is gone; the next evaluation marks one. best: the step of the folder's.
  void continue_from(int64_t best);
  // Makes a checkpoint of now one of the best if `what` is monitored and few were better. samples: that a share was measured on.
  void consider(const std::string& what, std::optional<double> value, int64_t samples = 0);

 private:
  void agree();  // with rank 0: only it looks at the folder

  RunContext& run_;
  CheckpointSaver& saver_;
};

}  // namespace halfstep::app
