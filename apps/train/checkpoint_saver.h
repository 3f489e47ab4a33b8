// SPDX-License-Identifier: Apache-2.0
// Writes the checkpoints of a run: at most one for each moment, and none of weights that are not finite.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "apps/train/run_context.h"
#include "apps/train/run_health.h"
#include "apps/train/step_outcomes.h"

namespace halfstep::app {

class CheckpointSaver {
 public:
  CheckpointSaver(RunContext& run, StepOutcomes& outcomes, RunHealth& health) : run_(run), outcomes_(outcomes), health_(health) {}

  void resumed();  // this moment is saved in the run's folder
  void save();     // unless this moment is saved already
  // Weights that only skipped steps lie behind are saved already. The older checkpoint stays, since `halfstep doctor` can compute
  // those steps again from there.
  void save_at_interval();
  // So that an evaluation that fails loses no step: once, as long as the run has no checkpoint. ended: see DueTimes.
  void save_before_evaluation(int ended);
  // Saves once more, with what the counters hold now. Was a checkpoint written?
  bool save_again();
  // Makes sure that what was saved without waiting for the disk is on it.
  void settle();

 private:
  static constexpr int kSecured = -2;
  std::vector<int64_t> best_steps() const;
  void write();

  RunContext& run_;
  StepOutcomes& outcomes_;
  RunHealth& health_;
  CheckpointPace pace_;
  std::optional<std::pair<int64_t, int64_t>> saved_;  // steps and next batch at the last save
  int64_t saved_step_ = -1;                           // applied ones then; kSecured: only save_before_evaluation has saved
};

}  // namespace halfstep::app
