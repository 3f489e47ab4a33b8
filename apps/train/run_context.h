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

constexpr double kLeastSeconds = 1e-9;  // least divisor of a rate: the clock of a short run may not have advanced

// Counts the seconds of a run over all its processes, and those of training in this process.
class RunClock {
 public:
  using Clock = std::chrono::steady_clock;
  void start() { start_ = Clock::now(); }
  void continue_from(double seconds) { earlier_ = seconds; }  // adds the seconds of earlier processes
  void exclude_evaluation(double seconds) { evaluating_ += seconds; }
  double seconds() const { return earlier_ + own_seconds(); }
  double own_seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }  // of this process
  double training_seconds() const { return own_seconds() - evaluating_; }  // of this process, without evaluations

 private:
  Clock::time_point start_;
  double earlier_ = 0, evaluating_ = 0;
};

struct RunContext {
  Config config;
  RunDir& dir;
  Progress& progress;
  ProcessGroup* group;  // null: one process
  Session session;
  Counters counters{};
  RunClock clock{};
  int64_t first_step = 0, first_samples = 0;  // counts at the start of this process
  int64_t own_samples = 0;                    // samples of this rank since its buffers were averaged
  Tensor grad_norm{};                         // of the last step; undefined if not computed

  int64_t epoch() const { return session.train->state().epoch; }                                   // finished epochs
  int64_t epoch_now() const { return epoch() + (session.train->state().next_batch > 0 ? 1 : 0); }  // the current one, from 1
  // Returns the scale of the loss; nothing if it is fixed or off.
  std::optional<double> scale() const {
    return session.scaler.is_enabled() && !session.scaler.is_fixed() ? std::optional(session.scaler.get_scale()) : std::nullopt;
  }
  bool saves() const { return config.checkpoint.every.unit != Interval::Unit::never; }
  // Averages the model's buffers over the ranks, weighted by their samples since the last time, which it then sets to 0.
  void share_buffers() {
    if (group) average_buffers(*session.model, *group, double(std::exchange(own_samples, 0)));
  }
  // Computes the statistics of averaged weights for an evaluation or a checkpoint at this moment.
  void make_averaged_statistics() {
    const double begin = clock.own_seconds();
    app::make_averaged_statistics(session, config.train, counters.attempted, group);
    clock.exclude_evaluation(clock.own_seconds() - begin);
  }
};

}  // namespace halfstep::app
