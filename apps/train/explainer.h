// SPDX-License-Identifier: Apache-2.0
// Explains steps that go wrong while a run trains: it has them computed again (amp/diagnosis/diagnose.h) and prints what it finds.
//
// On a CPU this happens at once: for a loss that is not finite before its backward, for skipped steps at the third in a row. A
// GPU's results are read where the run reads them anyway. While the last known steps were skipped, no weight has changed, so the
// next step is examined in their place.
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

struct TriedStep {
  int64_t attempt, step;  // its numbers among all steps and, if it is applied, among those
  double loss;
  bool applied;
};

// The number of a step among those that are applied, as which it was tried, and among all; and its epoch, from 1.
struct FoundStep {
  int64_t step, attempt, epoch;
};

// For a run that is computed again (time_travel.h, verify.h), and ends early. Each function may be left out.
struct Watch {
  std::optional<int64_t> until = {};          // the last step to take
  std::optional<int64_t> until_attempt = {};  // the same, counted among all that were tried
  int64_t from = 0;                           // steps before this one are not examined
  // Looks for a fault: every step is watched, nothing is printed, and the run ends at the first fault.
  std::function<void(const FoundStep&, const Diagnosis&)> found = nullptr;
  std::function<void(int64_t attempt, const Batch&)> begins = nullptr;  // before each micro-batch
  std::function<void(const TriedStep&, Session&)> stepped = nullptr;
};

class Explainer {
 public:
  // All arguments must outlive it; `step` may be made later.
  Explainer(const Config& config, Session& session, TrainStep& step, Progress& progress, RunDir& dir, ProcessGroup* group,
            Watch* watch);
  // With what it needs to hear of losses.
  TrainStepOptions added_to(TrainStepOptions options);

  // So many steps of the run before were skipped, and this was its usual loss.
  void resumed(int64_t skipped, double loss) { history_.skips.resumed(skipped), history_.losses.resumed(loss); }
  // Does it look at which of the applied steps this one is, counted from 1? Then begin() must know.
  bool observes(int64_t step) const { return observer_.is_due(step); }
  // Before a batch: the steps tried so far, this one included, and those of them that were applied.
  void begin(int64_t attempt, int64_t applied, int64_t epoch, const Batch& batch);
  // After it. Throws DivergedError where train.detect_anomaly says so.
  void stepped(const StepResult& result);
  // An outcome that was read later.
  void read(int64_t step, bool applied, double loss);

  bool ended() const { return ended_; }  // as the watch says

  // What was found in the steps since the last one that was applied: "input_nonfinite: ..."; empty: nothing.
  const std::string& last_cause() const { return findings_.last_cause; }
  bool has_explained() const { return !findings_.explained.empty(); }
  // What was found in the last step that was tried as the one with this number: "input_nonfinite"; empty: nothing.
  std::string cause_of(int64_t step) const { return step == findings_.step ? findings_.latest : ""; }

 private:
  void explain(StepUnderTest step, const std::string& what, bool broke_weights = false);
  void say_quiet(Diagnosis d);
  std::string keep_in_capsule(const StepUnderTest& step, CapsuleStep about, const Diagnosis& d, bool own) const;
  void examine(const StepResult& result);
  void look_at_weights();
  void count(bool applied, double loss);
  Diagnosis of_all_ranks(Diagnosis d, bool& own) const;

  // What was found so far.
  struct Findings {
    std::set<std::pair<std::string, std::string>> explained;                              // causes and their places
    std::string last_cause;                                                               // see last_cause()
    std::string latest;                                                                   // the latest cause
    int64_t step = -1;                                                                    // and its step
    bool add(const Diagnosis& d) { return explained.insert({d.cause, d.where}).second; }  // is it new?
    bool is_full() const;
  };

  const Config& config_;
  Session& s_;
  TrainStep& step_;
  Progress& progress_;
  ProcessGroup* group_;
  Watch* watch_;
  Observer observer_;
  struct {
    bool seeks, on, at_once;  // seeks: a fault, for the watch
  } looks_;
  bool ended_ = false;
  struct {
    bool is_kept = false;
    std::vector<std::vector<int64_t>> samples{};  // of its micro-batches
  } kept_;                                        // the step that is under way
  FoundStep now_{};                               // that step
  int64_t counted_ = 0;                           // the last step whose outcome is known
  struct {
    Tensors before{};   // the parameters before a watched step
    double update = 0;  // the largest |change| / |parameters| of watched steps
  } weights_;
  struct History {
    SkipCount skips;
    RecentLosses losses{};
  } history_;
  Findings findings_;
};

}  // namespace halfstep::app
