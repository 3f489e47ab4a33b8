// SPDX-License-Identifier: Apache-2.0
// Trains a config's model: steps, evaluations, checkpoints, metrics.
//
// The loss, the scale and the outcome of steps are read only when something is logged, evaluated or saved. A run that is stopped
// and resumed takes the same steps, bit for bit, as one that was not.
//
// Applied steps count: a step that the scaler skips does not advance the schedule, train.max_steps, intervals of steps or the
// names of checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "amp/step/train_step.h"
#include "apps/train/best_tracker.h"
#include "apps/train/checkpoint_saver.h"
#include "apps/train/due_times.h"
#include "apps/train/explainer.h"
#include "apps/train/outcome_reader.h"
#include "apps/train/rank_agreement.h"
#include "apps/train/run_context.h"
#include "apps/train/run_ending.h"
#include "apps/train/run_health.h"
#include "apps/train/run_lines.h"
#include "apps/train/run_profile.h"

namespace halfstep::app {

class Trainer {
 public:
  // Resumes if `dir` says so. All arguments must outlive it. With a group, every rank runs one. A `watch` can end the run, without
  // a last evaluation or checkpoint.
  Trainer(const Config& config, RunDir& dir, Progress& progress, ProcessGroup* group = nullptr, Watch* watch = nullptr);

  // Trains until the config's end or a stop signal; a signal before the first step leaves the run's folder unchanged. Throws
  // DivergedError.
  TrainSummary run();

  // Profiles this many steps: prints where their time is spent, and writes it to the run's folder (profile.h). Call it before
  // run().
  void profile(int64_t steps) { profile_.start(steps); }

  const Session& session() const { return run_.session; }

 private:
  void resume(const std::filesystem::path& checkpoint);
  void warn_of_seen_samples(const CheckpointContents& contents);
  std::string fingerprint_of_val() const;
  void calibrate_scale();
  TrainSummary run_steps();
  Json run_facts() const;  // run.json's facts about program and machine
  bool is_finished();      // may read outcomes of steps
  void train_batch();
  void average_weights(int64_t epochs);  // epochs: with the current one
  void end_epoch();
  void after_step();  // does everything that is due after an optimizer step
  // Evaluates, prints the line of an epoch, and saves what is due, after the training lines of a step, an epoch or both (`ended`,
  // see due_times.h).
  void follow_up(int ended, bool evaluates);
  void log(bool epoch_end);
  // Evaluates, writes a line of metrics.jsonl, and observes each value: the best one is saved.
  void evaluate_and_consider();
  // Gives a value to a schedule that follows it, and to early stopping. Call it before writing a checkpoint of this moment, which
  // then contains the decisions.
  void observe_value(const std::string& metric, std::optional<double> value);

  RunContext run_;
  bool is_recorded_;  // in run.json, and must apply a step
  Explainer explainer_;
  TrainStep step_;
  RunHealth health_{run_, explainer_};
  OutcomeReader outcomes_{run_, explainer_, health_};
  RankAgreement ranks_{run_.group};
  DueTimes due_{run_, outcomes_, ranks_};
  CheckpointSaver saver_{run_, outcomes_, health_};
  BestTracker bests_{run_, saver_};
  RunLines lines_{run_};
  RunEnding ending_{run_};
  RunProfile profile_{run_};
};

}  // namespace halfstep::app
