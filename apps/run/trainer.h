// SPDX-License-Identifier: Apache-2.0
// Trains a config's model: steps, evaluations, checkpoints, metrics.
//
// The loss, the scale and the outcome of steps are read back only where something is logged, evaluated or saved. A run that is
// stopped and resumed takes the same steps, to the bit, as one that was not.
//
// Steps are counted as they are applied: a step that the scaler skips moves neither the schedule nor train.max_steps, an interval
// of steps or the name of a checkpoint.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "amp/step/train_step.h"
#include "apps/run/explainer.h"
#include "apps/run/profile.h"
#include "apps/run/progress.h"
#include "apps/run/run_dir.h"
#include "apps/run/session.h"

namespace halfstep::app {

enum class Ending : uint8_t { finished, interrupted, requeue };

struct TrainSummary {
  Ending ending = Ending::finished;
  Json json;  // "val.accuracy", "val.loss", "steps_applied", ...
};

// "accuracy 97.31 %"
std::string shown(const MetricValue& metric);
// How this program was called: scripts/run.sh says so.
std::string command_name();
// Infinite and NaN are no JSON.
Json or_null(const std::optional<double>& value);

class Trainer {
 public:
  // Resumes when `dir` says so. All arguments must outlive it. With a group, every rank runs one. With `watch` it ends when that
  // says so, without a last evaluation or checkpoint.
  Trainer(const Config& config, RunDir& dir, Progress& progress, ProcessGroup* group = nullptr, Watch* watch = nullptr);

  // Until the config's end or a stop signal; one that came before the first step leaves the run's folder as it is. Throws
  // DivergedError.
  TrainSummary run();

  // Before run(): where the time of so many steps is spent is printed, and written to the run's folder (profile.h).
  void profile(int64_t steps);

  const Session& session() const { return s_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kStepEnds = 1, kEpochEnds = 2, kSecured = -2;
  struct Pending {
    Tensor loss;
    StepOutcome outcome;
    bool stepped, no_target;
    Denominator over;
  };

  TrainSummary run_steps();
  Json run_facts() const;  // what run.json says of program and machine
  void introduce() const;
  int stop_requested() const;  // the signal, once all ranks know of it; 0: none
  uint32_t notices() const;    // sent to the other ranks: signals, and on rank 0 the clock
  void agree();                // takes over the notices of all ranks
  void agree_on_start();
  void agree_on_bests();
  bool finished();
  void train_batch();
  void end_epoch();
  void after_step();  // everything that is due after an optimizer step
  // What follows the lines of a step, an epoch or both: `ended` is of kStepEnds and kEpochEnds.
  void finish(int ended, bool evaluates);
  bool due_at(int ended, const Interval& every, Clock::time_point& last);
  // So that an evaluation that fails loses no step: once, as long as the run has no checkpoint.
  void save_before_evaluation(int ended);
  void drain();  // reads pending losses and outcomes; throws DivergedError
  void note_first_skip(int64_t step, bool loss_finite);
  void note_no_target(int64_t step);
  void check_weights();         // throws DivergedError where one is not finite
  void check_progress() const;  // throws DivergedError where steps were tried and none was applied
  [[noreturn]] void diverged(const std::string& what);
  void log(bool epoch_end = false);
  void log_epoch();
  void learn_cause();  // of the last skipped step
  void show(bool evaluates = false);
  std::vector<LinePart> epoch_parts(bool evaluated) const;
  void evaluate_now();
  void share_buffers();  // their mean over ranks
  void make_averaged_statistics();
  void consider_best(const std::string& what, std::optional<double> value, int64_t samples = 0);  // samples: of a share
  void consider_stopping(const std::string& what, std::optional<double> value);
  void save();
  void write_checkpoint();
  std::vector<int64_t> best_steps() const;
  void settle();
  void save_at_interval();
  bool due(const Interval& every, bool epoch_end, Clock::time_point& last);
  bool applied_steps_reach(int64_t count);
  int64_t epoch() const { return s_.train->state().epoch; }                                   // whole ones
  int64_t epoch_now() const { return epoch() + (s_.train->state().next_batch > 0 ? 1 : 0); }  // the one that is under way, from 1
  double seconds() const;
  double training_seconds() const;  // of this process, without evaluations
  std::optional<double> scale() const;
  TrainSummary summary(Ending ending);
  Json best_json() const;
  void report_end(const Json& summary);  // of a run that was not interrupted
  void profiled(bool stepped);           // of a run that is profiled: a step, or the end of the data before one
  void report_profile();
  void warn_of_no_progress();
  void say_next();

  Config config_;
  RunDir& dir_;
  Progress& progress_;
  ProcessGroup* group_;  // null: one process
  bool recorded_;        // in run.json
  Session s_;
  EpochLines lines_;
  Explainer explainer_;
  TrainStep step_;
  std::optional<StepProfiler> profiler_;
  Counters n_;
  std::vector<Pending> pending_;
  Tensor grad_norm_;  // of the last step; undefined when no step computed one
  Clock::time_point last_log_, last_eval_, last_save_, start_;
  double eval_seconds_ = 0, earlier_seconds_ = 0;
  struct {
    double seconds = 0, wait = 0, rank_wait = 0;
    int64_t samples = 0;
  } logged_;  // training_seconds, time spent waiting for data and samples at the last line of metrics.jsonl
  int64_t first_step_ = 0, first_samples_ = 0;  // where this process began
  int64_t own_samples_ = 0;                     // of this rank since the ranks shared their buffers
  int64_t first_pending_step_ = 0;
  int64_t bad_run_ = 0;  // losses in a row that are not finite
  int64_t skips_in_row_ = 0;
  bool skip_noted_ = false, no_target_noted_ = false;
  uint32_t agreed_ = 0;                               // notices of all ranks at the last step
  int stop_ = 0;                                      // the signal that any rank got
  std::optional<std::pair<int64_t, int64_t>> saved_;  // steps and next batch at the last save
  CheckpointPace pace_;
  int64_t saved_step_ = -1;  // applied ones then; kSecured: only save_before_evaluation has saved
};

}  // namespace halfstep::app
