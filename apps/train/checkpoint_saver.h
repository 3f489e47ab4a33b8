// SPDX-License-Identifier: Apache-2.0
// Writes the checkpoints of a run: at most one at each moment, and none with weights that are not finite.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "apps/train/outcome_reader.h"
#include "apps/train/run_context.h"
#include "apps/train/run_health.h"

namespace halfstep::app {

class CheckpointSaver {
 public:
  CheckpointSaver(RunContext& run, OutcomeReader& outcomes, RunHealth& health) : run_(run), outcomes_(outcomes), health_(health) {}

  void mark_as_saved();  // for a resumed run, whose checkpoint is in the run's folder
  // Does nothing if this moment is saved. Writes no checkpoint, but a warning, if the last losses are not finite and there is no
  // scaler. Throws DivergedError for weights that are not finite.
  void save();
  // Saves, unless only skipped steps followed the last save. The older checkpoint is kept, since `halfstep doctor` can compute
  // those steps from it.
  void save_at_interval();
  // Saves once before an evaluation, if the run has no checkpoint, so that a failing evaluation loses no step. ended: see
  // DueTimes.
  void save_before_evaluation(int ended);
  // Saves this moment again, with the current counters. Returns whether a checkpoint was written.
  bool save_again();
  // Waits until checkpoints that were saved without waiting are on the disk.
  void wait_until_written();

 private:
  static constexpr int64_t kNever = -1, kBeforeEvaluation = -2;  // for saved_step_; kBeforeEvaluation: no other save
  std::vector<int64_t> best_steps() const;
  void write();

  RunContext& run_;
  OutcomeReader& outcomes_;
  RunHealth& health_;
  CheckpointPace pace_;
  std::optional<std::pair<int64_t, int64_t>> saved_;  // steps and next batch at the last save
  int64_t saved_step_ = kNever;                       // applied steps then
};

}  // namespace halfstep::app
