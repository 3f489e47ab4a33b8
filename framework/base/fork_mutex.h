// SPDX-License-Identifier: Apache-2.0
// Mutexes and work that fork() waits for before it makes the child, since the child has none of the other threads.
#pragma once

#include <atomic>
#include <mutex>

#include "framework/base/guard.h"

namespace halfstep {

// For mutexes that live as long as the process. The child of a fork has only the thread that called it: a mutex that another thread
// held at that moment would stay locked in the child for ever. fork() waits up to ten seconds for all of them.
class ForkMutex {
 public:
  constexpr ForkMutex() = default;
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;
  void lock() { listed().mutex_.lock(); }
  bool try_lock() { return listed().mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  // Makes fork() wait for this mutex from its first use on.
  ForkMutex& listed() {
    if (!is_listed_.load(std::memory_order_relaxed)) [[unlikely]] list();
    return *this;
  }
  void list();

  std::mutex mutex_;
  std::atomic<bool> is_listed_{false};
  ForkMutex* next_ = nullptr;
  friend class ForkMutexes;
};

// Marks work that holds locks of a library while it lives. fork() waits for it as for the mutexes, and such work waits for a fork.
class NoFork : LocalGuard {
 public:
  [[nodiscard]] NoFork();
  ~NoFork();
  // Returns how many live, in all threads.
  static int count();
};

// Returns what `make` returned in its first call, and keeps it for ever. fork() waits while it is made: a static variable that
// another thread was making would never be complete in the child. For values that need a library or much time.
template <class Make>
const auto& made_once(Make make) {
  using T = decltype(make());
  static constinit std::atomic<const T*> made{nullptr};
  if (const T* const known = made.load(std::memory_order_acquire)) [[likely]] return *known;
  const NoFork no_fork;
  static const T& value = *new T(make());
  made.store(&value, std::memory_order_release);
  return value;
}

// Functions that fork() calls before it takes the mutexes and after it has released them, in the parent and in the child. One set
// per process.
struct ForkGate {
  void (*before)();
  void (*after)();
  void (*in_child)();
};
void set_fork_gate(const ForkGate& gate);

}  // namespace halfstep
