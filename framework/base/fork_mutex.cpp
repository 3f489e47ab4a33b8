// SPDX-License-Identifier: Apache-2.0
#include "framework/base/fork_mutex.h"

#include <pthread.h>

#include <chrono>
#include <thread>

namespace halfstep {

// The list of all mutexes. A thread may hold one and wait for another, in any order: none is held while the fork waits.
class ForkMutexes {
 public:
  static void add(ForkMutex& mutex) {
    const std::lock_guard lock(list_mutex);
    register_handlers();
    mutex.next_ = first;
    first = &mutex;
  }
  static void set_gate(const ForkGate& new_gate) {
    const std::lock_guard lock(list_mutex);
    register_handlers();
    gate = new_gate;
  }

 private:
  // Registers the functions that fork() calls, once.
  static void register_handlers() {
    static const int registered = pthread_atfork(
        &lock_all,
        [] {
          unlock_all();
          if (gate.after) gate.after();
        },
        [] {
          unlock_all();
          if (gate.in_child) gate.in_child();
        });
    (void)registered;
  }
  // Locks all mutexes and returns true, or none if one is locked.
  static bool try_lock_all() {
    for (ForkMutex* m = first; m; m = m->next_) {
      if (m->try_lock()) continue;
      for (ForkMutex* held = first; held != m; held = held->next_) held->unlock();
      return false;
    }
    return true;
  }
  // Tries to lock all mutexes until it succeeds or has waited kLongestWait, after which fork() makes the child nevertheless.
  static void lock_all() {
    if (gate.before) gate.before();
    const auto until = std::chrono::steady_clock::now() + kLongestWait;
    list_mutex.lock();
    while (!(all_locked = try_lock_all()) && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(kPause);
  }
  static void unlock_all() {
    for (ForkMutex* m = first; all_locked && m; m = m->next_) m->unlock();
    all_locked = false;
    list_mutex.unlock();
  }

  static constexpr auto kLongestWait = std::chrono::seconds(10);
  static constexpr auto kPause = std::chrono::microseconds(20);
  static inline constinit std::mutex list_mutex;
  static inline constinit ForkMutex* first = nullptr;
  static inline constinit bool all_locked = false;
  static inline constinit ForkGate gate{};
};

ForkMutex::ForkMutex() : next_(nullptr) { ForkMutexes::add(*this); }

void set_fork_gate(const ForkGate& gate) { ForkMutexes::set_gate(gate); }

}  // namespace halfstep
