// SPDX-License-Identifier: Apache-2.0
#include "framework/base/generator.h"

#include <mutex>

#include "framework/base/fork_mutex.h"

namespace halfstep {

namespace {

// Returns the mutex of all generators, which hold it for a few instructions.
ForkMutex& states() {
  static auto& mutex = *new ForkMutex;
  return mutex;
}

}  // namespace

Generator::State Generator::reserve(int64_t count) {
  const std::lock_guard lock(states());
  const State start = state_;
  state_.offset += uint64_t(count + 3) / 4;
  return start;
}

Generator::State Generator::state() const {
  const std::lock_guard lock(states());
  return state_;
}

void Generator::set_state(State s) {
  const std::lock_guard lock(states());
  state_ = s;
}

Generator& default_generator() {
  static Generator g;
  return g;
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

}  // namespace halfstep
