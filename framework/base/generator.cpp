// SPDX-License-Identifier: Apache-2.0
#include "framework/base/generator.h"

#include <pthread.h>

#include <atomic>

namespace halfstep {

class Generator::Lock {
 public:
  [[nodiscard]] explicit Lock(const Generator& generator) : busy_(generator.busy_) { take(busy_); }
  ~Lock() { give_back(busy_); }
  Lock(const Lock&) = delete;

  // The child of a fork has no other thread, which might have the state.
  static void hold_in_forks() {
    [[maybe_unused]] static const int heard = pthread_atfork([] { take(std::atomic_ref(default_generator().busy_)); },
                                                             [] { give_back(std::atomic_ref(default_generator().busy_)); },
                                                             [] { give_back(std::atomic_ref(default_generator().busy_)); });
  }

 private:
  static void take(std::atomic_ref<uint32_t> busy) {
    while (busy.exchange(1, std::memory_order_acquire)) busy.wait(1);
  }
  static void give_back(std::atomic_ref<uint32_t> busy) {
    busy.store(0, std::memory_order_release);
    busy.notify_one();
  }
  std::atomic_ref<uint32_t> busy_;
};

Generator::State Generator::reserve(int64_t count) {
  Lock::hold_in_forks();
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
