// SPDX-License-Identifier: Apache-2.0
// Objects that the parts of a trainer share: the run's objects, its counters and its clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "amp/step/data_parallel.h"
#include "apps/record/run_dir.h"
#include "apps/session/averaged_statistics.h"
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
  int64_t own_samples = 0;                    // of this rank since its buffers were averaged
  Tensor grad_norm{};                         // of the last step; undefined if not computed

  int64_t epoch() const { return s.train->state().epoch; }                                   // finished epochs
  int64_t epoch_now() const { return epoch() + (s.train->state().next_batch > 0 ? 1 : 0); }  // the current one, from 1
  // Returns the scale of the loss; nothing if it is fixed or off.
  std::optional<double> scale() const {
    return s.scaler.is_enabled() && !s.scaler.is_fixed() ? std::optional(s.scaler.get_scale()) : std::nullopt;
  }
  bool saves() const { return config.checkpoint.every.unit != Interval::Unit::never; }
  // Averages buffers over the ranks.
  void share_buffers() {
    if (group) average_buffers(*s.model, *group, double(std::exchange(own_samples, 0)));
  }
  // Computes the statistics of averaged weights for an evaluation or a checkpoint at this moment.
  void make_averaged_statistics() {
    const double begin = clock.here();
    app::make_averaged_statistics(s, config.train, n.steps, group);
    clock.evaluated(clock.here() - begin);
  }
};

}  // namespace halfstep::app
