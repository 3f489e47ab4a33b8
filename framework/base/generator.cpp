// SPDX-License-Identifier: Apache-2.0
#include "framework/base/generator.h"

#include <atomic>

namespace halfstep {

class Generator::Lock {
 public:
  [[nodiscard]] explicit Lock(const Generator& generator) : busy_(generator.busy_) {
    while (busy_.exchange(1, std::memory_order_acquire)) busy_.wait(1);
  }
  ~Lock() {
    busy_.store(0, std::memory_order_release);
    busy_.notify_one();
  }
  Lock(const Lock&) = delete;

 private:
  std::atomic_ref<uint32_t> busy_;
};

Generator::State Generator::reserve(int64_t count) {
  const Lock lock(*this);
  const State start = state_;
  state_.offset += uint64_t(count + 3) / 4;
  return start;
}

Generator::State Generator::state() const {
  const Lock lock(*this);
  return state_;
}

void Generator::set_state(State s) {
  const Lock lock(*this);
  state_ = s;
}

Generator& default_generator() {
  static Generator g;
  return g;
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

}  // namespace halfstep
