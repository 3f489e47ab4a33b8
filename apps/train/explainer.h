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

struct AttemptedStep {
  int64_t attempt, step;  // its numbers among attempted steps and, if it is applied, among applied ones
  double loss;
  bool applied;
};

// A step's numbers among applied steps (as which it was attempted) and among attempted ones, and its epoch, from 1.
struct FoundStep {
  int64_t step, attempt, epoch;
};

// Functions of a replay or a comparison of runs (time_travel.h, verify.h), which may end the run early. Each may be empty.
struct Watch {
  std::optional<int64_t> until = {};          // last step
  std::optional<int64_t> until_attempt = {};  // the same, among attempted steps
  int64_t from = 0;                           // earlier steps are not examined
  // Looks for a fault: watches every step, prints nothing, and ends the run at the first fault.
  std::function<void(const FoundStep&, const Diagnosis&)> on_diagnosis = nullptr;
  std::function<void(int64_t attempt, const Batch&)> begins = nullptr;  // before each micro-batch
  std::function<void(const AttemptedStep&, Session&)> stepped = nullptr;
};

class Explainer {
 public:
  // All arguments must outlive it; `step` may be constructed later.
  Explainer(const Config& config, Session& session, TrainStep& step, Progress& progress, RunDir& dir, ProcessGroup* group,
            Watch* watch);
  // Adds the callbacks that it needs.
  TrainStepOptions added_to(TrainStepOptions options);

  // Continues the counts of an earlier process: its skipped steps and its usual loss.
  void resumed(int64_t skipped, double loss) { history_.skips.resumed(skipped), history_.losses.resumed(loss); }
  // Returns whether it observes this applied step, counted from 1. Then begin() needs the number.
  bool observes(int64_t step) const { return observer_.is_due(step); }
  // Call before a batch, with the counts of attempted and applied steps, this one included.
  void begin(int64_t attempt, int64_t applied, int64_t epoch, const Batch& batch);
  // Call after it. Throws DivergedError if train.detect_anomaly requires it.
  void stepped(const StepResult& result);
  // Takes an outcome that was read later.
  void read(int64_t step, bool applied, double loss);

  bool ended() const { return ended_; }  // whether the watch ends the run

  // Returns the finding in the steps since the last applied one: "input_nonfinite: ..."; empty: none.
  const std::string& last_cause() const { return findings_.last_cause; }
  bool has_explained() const { return !findings_.explained.empty(); }
  // Returns the finding in the last attempt of this step: "input_nonfinite"; empty: none.
  std::string cause_of(int64_t step) const { return step == findings_.step ? findings_.latest : ""; }

 private:
  void explain(StepUnderTest step, const std::string& what, bool broke_weights = false);
  void say_quiet(Diagnosis d);
  std::string keep_in_capsule(const StepUnderTest& step, CapsuleStep about, const Diagnosis& d, bool own) const;
  void examine(const StepResult& result);
  void look_at_weights();
  void count(bool applied, double loss);
  Diagnosis of_all_ranks(Diagnosis d, bool& own) const;

  // Findings so far.
  struct Findings {
    std::set<std::pair<std::string, std::string>> explained;                              // causes and their places
    std::string last_cause;                                                               // see last_cause()
    std::string latest;                                                                   // the latest cause
    int64_t step = -1;                                                                    // and its step
    bool add(const Diagnosis& d) { return explained.insert({d.cause, d.where}).second; }  // returns whether it is new
    bool is_full() const;
  };

  const Config& config_;
  Session& s_;
  TrainStep& step_;
  Progress& progress_;
  ProcessGroup* group_;
  Watch* watch_;
  RunObserver observer_;
  struct {
    bool seeks, on, at_once;  // seeks: looks for a fault for the watch
  } looks_;
  bool ended_ = false;
  struct {
    bool is_kept = false;
    std::vector<std::vector<int64_t>> samples{};  // of its micro-batches
  } kept_;                                        // of the current step
  FoundStep now_{};                               // the current step
  int64_t counted_ = 0;                           // last step with a known outcome
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
