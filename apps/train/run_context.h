// SPDX-License-Identifier: Apache-2.0
// What the parts of a trainer share: the objects of the run, its counters and its clock.
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

// Counts the seconds of a run over all of its processes, and those of training in this process.
class RunClock {
 public:
  using Clock = std::chrono::steady_clock;
  void start() { start_ = Clock::now(); }
  void resumed(double seconds) { earlier_ = seconds; }        // the processes before took so many
  void evaluated(double seconds) { evaluating_ += seconds; }  // which are no training
  double seconds() const { return earlier_ + here(); }
  double here() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }  // of this process
  double training() const { return here() - evaluating_; }                                      // without evaluations

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
  int64_t first_step = 0, first_samples = 0;  // where this process began
  int64_t own_samples = 0;                    // of this rank since the ranks shared their buffers
  Tensor grad_norm{};                         // of the last step; undefined when no step computed one

  int64_t epoch() const { return s.train->state().epoch; }                                   // whole ones
  int64_t epoch_now() const { return epoch() + (s.train->state().next_batch > 0 ? 1 : 0); }  // the one that is under way, from 1
  // Returns the scale of the loss; nothing where it is fixed or off.
  std::optional<double> scale() const {
    return s.scaler.is_enabled() && !s.scaler.is_fixed() ? std::optional(s.scaler.get_scale()) : std::nullopt;
  }
  bool saves() const { return config.checkpoint.every.unit != Interval::Unit::never; }
  // Makes buffers their mean over the ranks.
  void share_buffers() {
    if (group) average_buffers(*s.model, *group, double(std::exchange(own_samples, 0)));
  }
  // Computes the statistics of averaged weights for an evaluation or a checkpoint of now.
  void make_averaged_statistics() {
    const double begin = clock.here();
    app::make_averaged_statistics(s, config.train, n.steps, group);
    clock.evaluated(clock.here() - begin);
  }
};

}  // namespace halfstep::app
