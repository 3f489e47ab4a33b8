// SPDX-License-Identifier: Apache-2.0
// Bases of guards: objects that change a state of their thread, or of the process, while they live.
#pragma once

#include <atomic>
#include <cstddef>

namespace halfstep {

// Guards are local variables: they cannot be copied, moved, assigned or made by new.
class LocalGuard {
 public:
  LocalGuard(const LocalGuard&) = delete;
  LocalGuard& operator=(const LocalGuard&) = delete;
  static void* operator new(size_t) = delete;
  static void* operator new[](size_t) = delete;

 protected:
  LocalGuard() = default;
  ~LocalGuard() = default;
};

// Warns that a guard ended on another thread than it began on.
void warn_of_other_thread(const char* guard);

// Base of a guard of its thread's state that may end before guards that began after it, as one in a std::optional may: those keep
// their state, and the next of them restores what this one would have restored. A guard that ends on another thread changes
// nothing there, and warns, as a destructor cannot throw.
template <class Self>
class OrderedGuard : public LocalGuard {
 protected:
  [[nodiscard]] OrderedGuard() : outer_(innermost_) { innermost_ = this; }
  ~OrderedGuard() {
    OrderedGuard** at = &innermost_;
    while (*at && *at != this && !one_was_lost_) at = &(*at)->outer_;
    if (*at == this) *at = outer_;
  }

  // Returns whether this thread began the guard; warns if not.
  bool ends_here(const char* guard) const {
    if (innermost_ == this) [[likely]]
      return true;
    for (const OrderedGuard* g = innermost_; g && !one_was_lost_; g = g->outer_)
      if (g == this) return true;
    if (!one_was_lost_.exchange(true)) warn_of_other_thread(guard);
    return false;
  }
  // Returns the first guard that began after this one, has not ended, and for which f(guard) is true; null: none.
  template <class F>
  Self* next(const F& f) const {
    Self* found = nullptr;
    for (OrderedGuard* g = innermost_; g && g != this; g = g->outer_)
      if (f(static_cast<const Self&>(*g))) found = static_cast<Self*>(g);
    return found;
  }
  Self* next() const {
    return next([](const Self&) { return true; });
  }

 private:
  static inline thread_local constinit OrderedGuard* innermost_ = nullptr;
  // Set when a guard ended on another thread: its own thread's list still has its address, so no list is followed any more.
  static inline constinit std::atomic<bool> one_was_lost_{false};
  OrderedGuard* outer_;
};

}  // namespace halfstep
