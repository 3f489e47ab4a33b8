// SPDX-License-Identifier: Apache-2.0
// Explains steps that go wrong during training: computes them again (amp/diagnosis/diagnose.h) and prints the findings.
//
// On a CPU it does so at once: before the backward of a loss that is not finite, and at the third skipped step in a row. A GPU's
// results are examined when the run reads them anyway. While the last known steps were skipped, no weight has changed, so the next
// step is examined in their place.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "amp/diagnosis/diagnose.h"
#include "amp/step/train_step.h"
#include "apps/session/session.h"
#include "apps/terminal/progress.h"
#include "apps/train/capsule.h"
#include "apps/train/observer.h"
#include "apps/train/step_history.h"

namespace halfstep::app {

// A step that has ended. attempt, step: its numbers among attempted steps and, if it is applied, among applied ones, from 1.
struct AttemptedStep {
  int64_t attempt, step;
  double loss;
  bool applied;
};

// The place of a step in a run: the number that it has among applied steps if it is applied, its number among attempted ones, and
// its epoch; all from 1.
struct StepPlace {
  int64_t step, attempt, epoch;
};

// Callbacks and bounds by which a replay or a comparison of runs (time_travel.h, verify.h) follows a run and ends it early. Each
// may be empty.
struct Watch {
  std::optional<int64_t> until = {};          // last step
  std::optional<int64_t> until_attempt = {};  // the same, among attempted steps
  int64_t from = 0;                           // earlier steps are not examined
  // Is called at the first fault, which ends the run. If it is set, every step is examined and nothing is printed.
  std::function<void(const StepPlace&, const Diagnosis&)> on_diagnosis = nullptr;
  std::function<void(int64_t attempt, const Batch&)> on_begin = nullptr;  // before each micro-batch
  std::function<void(const AttemptedStep&, Session&)> on_step = nullptr;  // after each attempted step
};

class Explainer {
 public:
  // All arguments must outlive it; `step` may be constructed later.
  Explainer(const Config& config, Session& session, TrainStep& step, Progress& progress, RunDir& dir, ProcessGroup* group,
            Watch* watch);
  // Returns the options with the callbacks that it needs.
  TrainStepOptions with_callbacks(TrainStepOptions options);

  // Continues the counts of an earlier process: its skipped steps and its usual loss.
  void continue_from(int64_t skipped, double usual_loss) {
    history_.skips.continue_from(skipped), history_.losses.continue_from(usual_loss);
  }
  // Returns whether it observes this applied step, counted from 1. The outcomes of all steps before must then be read, so that
  // begin() gets this number.
  bool observes(int64_t step) const { return observer_.is_due(step); }
  // Call before a batch, with the counts of attempted and applied steps, this one included.
  void begin(int64_t attempt, int64_t applied, int64_t epoch, const Batch& batch);
  // Call after it. Throws DivergedError if train.detect_anomaly requires it.
  void end(const StepResult& result);
  // Counts an outcome that was read later. attempt: the step's number among attempted ones.
  void add_outcome(int64_t attempt, bool applied, double loss);

  bool ended() const { return ended_; }  // whether the watch ends the run

  // Returns the finding in the steps since the last applied one: "input_nonfinite: ..."; empty: none.
  const std::string& last_cause() const { return findings_.last_cause; }
  bool has_explained() const { return !findings_.causes.empty(); }
  // Returns the finding in the last attempt of this step: "input_nonfinite"; empty: none.
  std::string cause_of(int64_t step) const { return step == findings_.step ? findings_.latest : ""; }

 private:
  void explain(StepUnderTest step, const std::string& fault, bool broke_weights = false);
  void warn_of_silent_cause(Diagnosis diagnosis);
  std::string save_capsule(const StepUnderTest& step, CapsuleStep about, const Diagnosis& diagnosis, bool is_own) const;
  void examine(const StepResult& result);
  void examine_update();
  void count_outcome(bool applied, double loss);
  Diagnosis worst_of_ranks(Diagnosis own, bool& is_own) const;
  Diagnosis own_diagnosis(const StepUnderTest& step, const StepHistory& history) const;
  void add_samples(StepUnderTest& step) const;

  // Findings so far.
  struct Findings {
    std::set<std::pair<std::string, std::string>> causes;  // with their places
    std::string last_cause;                                // see last_cause()
    std::string latest;                                    // the latest cause
    int64_t step = -1;                                     // and its step
    // Adds a cause, and returns whether it is new.
    bool add(const Diagnosis& d) { return causes.insert({d.cause, d.where}).second; }
    bool is_full() const;
  };

  const Config& config_;
  Session& session_;
  TrainStep& step_;
  Progress& progress_;
  ProcessGroup* group_;
  Watch* watch_;
  RunObserver observer_;
  struct {
    bool seeks_fault, explains, explains_at_once;  // seeks_fault: for the watch
  } mode_;
  bool ended_ = false;
  StepPlace place_{};  // of the current step
  struct {
    bool is_kept = false;                         // by TrainStep
    std::vector<std::vector<int64_t>> samples{};  // of each micro-batch
  } current_;
  int64_t counted_ = 0;  // last attempt with a known outcome
  struct {
    Tensors before{};   // parameters before a watched step
    double update = 0;  // largest |change| / |parameters| of watched steps
  } weights_;
  struct History {
    SkipCount skips;
    RecentLosses losses{};
  } history_;
  Findings findings_;
};

}  // namespace halfstep::app
