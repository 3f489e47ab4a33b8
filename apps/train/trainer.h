// SPDX-License-Identifier: Apache-2.0
// Trains a config's model: steps, evaluations, checkpoints, metrics.
//
// The loss, the scale and the outcome of steps are read back only where something is logged, evaluated or saved. A run that is
// stopped and resumed takes the same steps, to the bit, as one that was not.
//
// Steps are counted as they are applied: a step that the scaler skips moves neither the schedule nor train.max_steps, an interval
// of steps or the name of a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "amp/step/train_step.h"
#include "apps/train/best_tracker.h"
#include "apps/train/checkpoint_saver.h"
#include "apps/train/due_times.h"
#include "apps/train/explainer.h"
#include "apps/train/rank_agreement.h"
#include "apps/train/run_context.h"
#include "apps/train/run_ending.h"
#include "apps/train/run_health.h"
#include "apps/train/run_lines.h"
#include "apps/train/run_profile.h"
#include "apps/train/step_outcomes.h"

namespace halfstep::app {

class Trainer {
 public:
  // Resumes when `dir` says so. All arguments must outlive it. With a group, every rank runs one. With `watch` it ends when that
  // says so, without a last evaluation or checkpoint.
  Trainer(const Config& config, RunDir& dir, Progress& progress, ProcessGroup* group = nullptr, Watch* watch = nullptr);

  // Until the config's end or a stop signal; one that came before the first step leaves the run's folder as it is. Throws
  // DivergedError.
  TrainSummary run();

  // Before run(): where the time of so many steps is spent is printed, and written to the run's folder (profile.h).
  void profile(int64_t steps) { profile_.take(steps); }

  const Session& session() const { return run_.s; }

 private:
  TrainSummary run_steps();
  Json run_facts() const;  // what run.json says of program and machine
  bool finished();
  void train_batch();
  void end_epoch();
  void after_step();  // everything that is due after an optimizer step
  // What follows the lines of a step, an epoch or both (`ended`, see DueTimes).
  void finish(int ended, bool evaluates);
  void log(bool epoch_end);
  void evaluate_now();
  void consider_stopping(const std::string& what, std::optional<double> value);

  RunContext run_;
  bool recorded_;  // in run.json
  Explainer explainer_;
  TrainStep step_;
  RunHealth health_{run_, explainer_};
  StepOutcomes outcomes_{run_, explainer_, health_};
  RankAgreement ranks_{run_.group};
  DueTimes due_{run_, outcomes_, ranks_};
  CheckpointSaver saver_{run_, outcomes_, health_};
  BestTracker bests_{run_, saver_};
  RunLines lines_{run_};
  RunEnding ending_{run_};
  RunProfile profile_{run_};
};

}  // namespace halfstep::app
