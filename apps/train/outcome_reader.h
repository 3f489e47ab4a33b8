// SPDX-License-Identifier: Apache-2.0
// Reads losses and outcomes of steps, only when something is logged, evaluated or saved, so that a device can run ahead.
#pragma once

#include <cstdint>
#include <vector>

#include "amp/step/train_step.h"
#include "apps/train/explainer.h"
#include "apps/train/run_context.h"
#include "apps/train/run_health.h"

namespace halfstep::app {

class OutcomeReader {
 public:
  struct Pending {
    Tensor loss;
    StepOutcome outcome;
    bool stepped, no_target;  // see StepResult
    Denominator denominator;  // of the loss
  };
  OutcomeReader(RunContext& run, Explainer& explainer, RunHealth& health) : run_(run), explainer_(explainer), health_(health) {}

  void begin() { first_step_ = run_.counters.attempted; }  // call it once the counters are set
  void add(Pending outcome) { pending_.push_back(std::move(outcome)); }
  // Reads pending outcomes into the counters, and waits for the device. Throws DivergedError after many losses in a row that are
  // not finite, and after many skips under the least loss scale.
  void read();
  // Returns whether this many steps have been applied. Pending outcomes count as applied until reading them could change the
  // answer.
  bool applied_reach(int64_t count);
  int64_t bad_losses() const { return bad_in_row_; }  // latest losses in a row that are not finite
  int64_t skips_in_row() const { return skips_in_row_; }
  bool are_bad_at_end() const;  // whether too many losses are not finite for a run to end successfully

 private:
  RunContext& run_;
  Explainer& explainer_;
  RunHealth& health_;
  std::vector<Pending> pending_;
  int64_t first_step_ = 0;  // steps attempted before the first pending one
  int64_t bad_in_row_ = 0, skips_in_row_ = 0;
};

}  // namespace halfstep::app
