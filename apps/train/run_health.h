// SPDX-License-Identifier: Apache-2.0
// Notes skipped steps, and throws the errors that end a run which no longer learns.
#pragma once

#include <cstdint>
#include <string>

#include "apps/train/explainer.h"
#include "apps/train/run_context.h"

namespace halfstep::app {

class RunHealth {
 public:
  RunHealth(RunContext& run, const Explainer& explainer) : run_(run), explainer_(explainer) {}

  void continue_from_counters() { skip_noted_ = run_.counters.skipped > 0; }  // call it once a checkpoint's are restored
  // Notes the first skipped step of each kind. step: its number among applied ones.
  void note_skip(int64_t step, bool loss_finite);
  void note_no_target(int64_t step);
  // Adopts the cause of the last skipped step, which may be explained after its outcome was read.
  void learn_cause();

  // Throws DivergedError if a weight is not finite. Losses may stay finite while an update breaks weights that no batch uses.
  void check_weights() const;
  // Throws DivergedError if no attempted step was applied, so that nobody evaluates or exports initial weights by mistake. Call it
  // after saving everything, the scale included.
  void check_progress() const;
  [[noreturn]] void fail_diverged(const std::string& fault) const;

 private:
  RunContext& run_;
  const Explainer& explainer_;
  bool skip_noted_ = false, no_target_noted_ = false;
};

}  // namespace halfstep::app
