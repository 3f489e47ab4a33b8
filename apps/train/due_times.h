// SPDX-License-Identifier: Apache-2.0
// Computes when a run's line, evaluation and checkpoint are due: at intervals of applied steps, epochs or seconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "apps/train/outcome_reader.h"
#include "apps/train/rank_agreement.h"
#include "apps/train/run_context.h"

namespace halfstep::app {

// Bits of what has just ended, as arguments called `ended` have them.
constexpr int kStepEnds = 1, kEpochEnds = 2;

class DueTimes {
 public:
  DueTimes(RunContext& run, OutcomeReader& outcomes, const RankAgreement& ranks) : run_(run), outcomes_(outcomes), ranks_(ranks) {}

  void start();  // starts the intervals of seconds
  // Returns whether it is due at the end of a step, an epoch or both. If it is, an interval of seconds starts again. Reads
  // outcomes of steps where the answer depends on them.
  bool take_due(Due what, int ended);
  uint32_t due_by_clock() const;  // bits of everything that is due by seconds

 private:
  using Clock = RunClock::Clock;
  const Interval& interval(Due what) const;
  static size_t index_of(Due what) { return what == Due::log ? 0 : what == Due::evaluation ? 1 : 2; }
  bool is_over(Due what) const;  // whether an interval of seconds has passed
  bool take_due_at(Due what, bool epoch_end);

  RunContext& run_;
  OutcomeReader& outcomes_;
  const RankAgreement& ranks_;
  std::array<Clock::time_point, 3> last_due_{};  // by index_of; for intervals of seconds
};

}  // namespace halfstep::app
