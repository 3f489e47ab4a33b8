// SPDX-License-Identifier: Apache-2.0
#include "framework/base/fork_mutex.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace halfstep {
namespace {

constinit std::atomic<int> works{0};       // NoFork that live
constinit std::atomic<bool> is_closed{false};  // no more may begin

// Keeps other threads from such work and returns true, or returns false if some is under way: it may need more, or a mutex.
bool close_works() {
  is_closed = true;
  if (works == 0) return true;
  is_closed = false;
  return false;
}

}  // namespace

// The list of all mutexes. A thread may hold one and wait for another, in any order: none is held while the fork waits.
class ForkMutexes {
 public:
  static void add(ForkMutex& mutex) {
    const std::lock_guard lock(list_mutex);
    register_handlers();
    if (mutex.is_listed_.exchange(true)) return;
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
          works = 0;
          unlock_all();
          if (gate.in_child) gate.in_child();
        });
    (void)registered;
  }
  // Locks all mutexes and returns true, or none if one is locked or while a NoFork lives.
  static bool try_lock_all() {
    if (!close_works()) return false;
    for (ForkMutex* m = first; m; m = m->next_) {
      if (m->mutex_.try_lock()) continue;
      for (ForkMutex* held = first; held != m; held = held->next_) held->unlock();
      is_closed = false;
      return false;
    }
    return true;
  }
  // Tries to lock all until it succeeds or has waited kLongestWait, after which fork() makes the child nevertheless.
  static void lock_all() {
    if (gate.before) gate.before();
    const auto until = std::chrono::steady_clock::now() + kLongestWait;
    for (list_mutex.lock(); !(all_locked = try_lock_all()) && std::chrono::steady_clock::now() < until; list_mutex.lock()) {
      list_mutex.unlock();  // a holder may need a mutex that is not in the list yet
      std::this_thread::sleep_for(kPause);
    }
  }
  static void unlock_all() {
    for (ForkMutex* m = first; all_locked && m; m = m->next_) m->unlock();
    all_locked = is_closed = false;
    list_mutex.unlock();
  }

  static constexpr auto kLongestWait = std::chrono::seconds(10);
  static constexpr auto kPause = std::chrono::microseconds(20);
  static inline constinit std::mutex list_mutex;
  static inline constinit ForkMutex* first = nullptr;
  static inline constinit bool all_locked = false;
  static inline constinit ForkGate gate{};
};

void ForkMutex::list() { ForkMutexes::add(*this); }

// Each side first writes its variable and then reads the other's, so at least one sees the other's write.
NoFork::NoFork() {
  for (++works; is_closed; ++works) {
    --works;
    while (is_closed) std::this_thread::yield();
  }
}
NoFork::~NoFork() { --works; }
int NoFork::count() { return works; }

void set_fork_gate(const ForkGate& gate) { ForkMutexes::set_gate(gate); }

}  // namespace halfstep
