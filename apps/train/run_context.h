// SPDX-License-Identifier: Apache-2.0
// Objects that the parts of a trainer share: the run's objects, its counters and its clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "apps/record/run_dir.h"
#include "apps/session/session.h"
#include "apps/terminal/progress.h"

namespace halfstep::app {

// Counts the seconds of a run over all its processes, and those of training in this process.
class RunClock {
 public:
  using Clock = std::chrono::steady_clock;
  void start() { start_ = Clock::now(); }
  void resumed(double seconds) { earlier_ = seconds; }        // seconds of earlier processes
  void evaluated(double seconds) { evaluating_ += seconds; }  // excludes them from training
  double seconds() const { return earlier_ + here(); }
  double here() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }  // seconds of this process
  double training() const { return here() - evaluating_; }                                      // of these, without evaluations

 private:
  Clock::time_point start_;
  double earlier_ = 0, evaluating_ = 0;
};

struct RunContext {
  Config config;
  RunDir& dir;
  Progress& progress;
  ProcessGroup* group;  // null: one process
  Session s;
  Counters n{};
  RunClock clock{};
  int64_t first_step = 0, first_samples = 0;  // start of this process
  Tensor grad_norm{};                         // of the last step; undefined if not computed

  int64_t epoch() const { return s.train->state().epoch; }                                   // finished epochs
  int64_t epoch_now() const { return epoch() + (s.train->state().next_batch > 0 ? 1 : 0); }  // the current one, from 1
  std::optional<double> scale() const;  // of the loss; unset if it is fixed or off
  bool saves() const { return config.checkpoint.every.unit != Interval::Unit::never; }
  void make_averaged_statistics();  // for an evaluation or a checkpoint at this moment
};

}  // namespace halfstep::app
