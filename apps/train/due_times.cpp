// SPDX-License-Identifier: Apache-2.0
#include "apps/train/due_times.h"

namespace halfstep::app {

void DueTimes::start() { last_due_.fill(Clock::now()); }

const Interval& DueTimes::interval(Due what) const {
  const Config& config = run_.config;
  return what == Due::log ? config.logging.every : what == Due::evaluation ? config.train.eval_every : config.checkpoint.every;
}

bool DueTimes::is_over(Due what) const {
  return std::chrono::duration<double>(Clock::now() - last_due_[index_of(what)]).count() >= interval(what).count;
}

uint32_t DueTimes::due_by_clock() const {
  uint32_t out = 0;
  for (const Due what : {Due::log, Due::evaluation, Due::checkpoint})
    if (interval(what).unit == Interval::Unit::seconds && is_over(what)) out |= uint32_t(what);
  return out;
}

bool DueTimes::take_due(Due what, int ended) {
  return ((ended & kEpochEnds) && take_due_at(what, true)) || ((ended & kStepEnds) && take_due_at(what, false));
}

bool DueTimes::take_due_at(Due what, bool epoch_end) {
  const Interval& every = interval(what);
  const auto at_multiple = [&] { return run_.counters.applied() % int64_t(every.count) == 0; };
  switch (every.unit) {
    case Interval::Unit::never: return false;
    case Interval::Unit::steps:
      if (epoch_end || !at_multiple()) return false;
      outcomes_.read();
      return at_multiple() && outcomes_.skips_in_row() == 0;  // a skipped step comes after the event of the applied one before it
    case Interval::Unit::epochs: return epoch_end && run_.epoch() % int64_t(every.count) == 0;
    case Interval::Unit::seconds: break;
  }
  if (epoch_end || !(ranks_.has_ranks() ? ranks_.is_agreed(what) : is_over(what))) return false;
  last_due_[index_of(what)] = Clock::now();
  return true;
}

}  // namespace halfstep::app
