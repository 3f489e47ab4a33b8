// SPDX-License-Identifier: Apache-2.0
// Observes steps of a run (diagnostics.every): writes a line to observed.jsonl for each, and looks for causes that break no step.
//
// The numbers of steps alone decide which ones are observed, so that a resumed run observes the same ones: every N-th step, or the
// first one after every N-th epoch. With several ranks all observe and rank 0 writes; they compare nothing with float32, as each
// has only its own rows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "amp/diagnosis/silent_causes.h"
#include "amp/step/train_step.h"
#include "apps/record/run_dir.h"
#include "apps/session/session.h"

namespace halfstep::app {

class RunObserver {
 public:
  // All arguments must outlive it; `step` may be constructed later.
  RunObserver(const Config& config, Session& session, TrainStep& step, RunDir& dir, bool has_ranks, bool is_off);

  bool is_due(int64_t step) const;  // by intervals of steps alone
  // Call before a batch of the step with this number among applied steps, from 1, and among attempted ones.
  void begin(int64_t step, int64_t attempt, int64_t epoch);
  // Returns whether the current step is observed. Then TrainStep must keep it.
  bool observes() const { return observer_.has_value(); }
  // Call after the batch. Returns the silent causes of an observed step that has ended, if they are to be explained. Writes the
  // step's line.
  std::vector<Diagnosis> end(const StepResult& result);
  // Stops observing this step: it broke.
  void stop() { observer_.reset(); }

 private:
  std::optional<int64_t> number_of(int64_t step, int64_t epoch) const;  // of the observation that is due at this step

  const Config& config_;
  Session& session_;
  TrainStep& step_;
  RunDir& dir_;
  const bool has_ranks_, is_on_;
  std::optional<StepObserver> observer_;    // of the current step; unset: it is not observed
  int64_t applied_step_ = 0, attempt_ = 0;  // its numbers among applied steps and among attempted ones
  double lr_ = 0;                           // its learning rate
  SilentCauses silent_causes_;
};

}  // namespace halfstep::app
