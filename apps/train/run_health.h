// SPDX-License-Identifier: Apache-2.0
// Remarks on skipped steps, and the errors that end a run which learns nothing more.
#pragma once

#include <cstdint>
#include <string>

#include "apps/train/explainer.h"
#include "apps/train/run_context.h"

namespace halfstep::app {

class RunHealth {
 public:
  RunHealth(RunContext& run, const Explainer& explainer) : run_(run), explainer_(explainer) {}

  void resumed() { skip_noted_ = run_.n.skipped > 0; }  // with the counters of a checkpoint
  // Notes the first skipped step of each kind. step: its number among applied ones.
  void note_skip(int64_t step, bool loss_finite);
  void note_no_target(int64_t step);
  // Takes over the cause of the last skipped step, which may be explained after its outcome was read.
  void learn_cause();

  // Losses may stay finite while an update breaks weights that no batch uses. Throws DivergedError where one is not finite.
  void check_weights() const;
  // Throws DivergedError where steps were tried and none was applied: the weights are the first values, which nobody wants to
  // evaluate or export by mistake. All is saved, the scale included.
  void check_progress() const;
  [[noreturn]] void diverged(const std::string& what) const;

 private:
  RunContext& run_;
  const Explainer& explainer_;
  bool skip_noted_ = false, no_target_noted_ = false;
};

}  // namespace halfstep::app
