// SPDX-License-Identifier: Apache-2.0
#include "framework/base/generator.h"

namespace halfstep {

Generator::State Generator::reserve(int64_t count) {
  const std::lock_guard lock(mutex_);
  const State start = state_;
  state_.offset += uint64_t(count + 3) / 4;
  return start;
}

Generator::State Generator::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Generator::set_state(State s) {
  const std::lock_guard lock(mutex_);
  state_ = s;
}

Generator& default_generator() {
  static Generator g;
  return g;
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

}  // namespace halfstep
