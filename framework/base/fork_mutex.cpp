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
  static void set(const ForkGate& to) {
    const std::lock_guard lock(list_mutex);
    register_handlers();
    gate = to;
  }

 private:
  // Registers the functions that fork() calls, once.
  static void register_handlers() {
    static const int registered = pthread_atfork(
        &take,
        [] {
          give_back();
          if (gate.after) gate.after();
        },
        [] {
          give_back();
          if (gate.in_child) gate.in_child();
        });
    (void)registered;
  }
  // Locks all mutexes, or none if one is locked.
  static bool take_all() {
    for (ForkMutex* m = first; m; m = m->next_) {
      if (m->try_lock()) continue;
      for (ForkMutex* held = first; held != m; held = held->next_) held->unlock();
      return false;
    }
    return true;
  }
  static void take() {
    if (gate.before) gate.before();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    list_mutex.lock();
    while (!(all_locked = take_all()) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  static void give_back() {
    for (ForkMutex* m = first; all_locked && m; m = m->next_) m->unlock();
    all_locked = false;
    list_mutex.unlock();
  }

  static inline constinit std::mutex list_mutex;
  static inline constinit ForkMutex* first = nullptr;
  static inline constinit bool all_locked = false;
  static inline constinit ForkGate gate{};
};

ForkMutex::ForkMutex() : next_(nullptr) { ForkMutexes::add(*this); }

void set_fork_gate(const ForkGate& gate) { ForkMutexes::set(gate); }

}  // namespace halfstep
