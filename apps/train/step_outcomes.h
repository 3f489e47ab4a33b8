// SPDX-License-Identifier: Apache-2.0
// The losses and outcomes of steps. They are read back only where something is logged, evaluated or saved, so that a device keeps
// its lead.
#pragma once

#include <cstdint>
#include <vector>

#include "amp/step/train_step.h"
#include "apps/train/explainer.h"
#include "apps/train/run_context.h"
#include "apps/train/run_health.h"

namespace halfstep::app {

class StepOutcomes {
 public:
  struct Pending {
    Tensor loss;
    StepOutcome outcome;
    bool stepped, no_target;
    Denominator over;
  };
  StepOutcomes(RunContext& run, Explainer& explainer, RunHealth& health) : run_(run), explainer_(explainer), health_(health) {}

  void begin() { first_step_ = run_.n.steps; }  // with the counters of a checkpoint, or new ones
  void add(Pending outcome) { pending_.push_back(std::move(outcome)); }
  // Reads those that are pending into the counters. Throws DivergedError after many bad losses.
  void read();
  // Have so many steps been applied? Outcomes count as applied until they are read: they are read where that matters.
  bool applied_reach(int64_t count);
  int64_t bad_losses() const { return bad_run_; }  // in a row, not finite
  int64_t skips_in_row() const { return skips_in_row_; }
  bool are_bad_at_end() const;  // too bad for a run that ends now to be done

 private:
  RunContext& run_;
  Explainer& explainer_;
  RunHealth& health_;
  std::vector<Pending> pending_;
  int64_t first_step_ = 0;  // the number of steps before the first pending one
  int64_t bad_run_ = 0, skips_in_row_ = 0;
};

}  // namespace halfstep::app
