// SPDX-License-Identifier: Apache-2.0
// Lets exit() wait for the work of other threads before it destroys static objects that the work uses, those of libraries included.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "framework/base/fork_mutex.h"
#include "framework/base/guard.h"

namespace halfstep {

// Marks work that needs a library's static objects, such as the code that oneDNN generates, while it lives. exit() waits for such
// work before it destroys these objects, for ten seconds at most. Work that begins later is not allowed and must do without the
// library; then process_ends() is true and stays so.
class BeforeEnd : LocalGuard {
 public:
  [[nodiscard]] BeforeEnd();
  ~BeforeEnd();
  bool allowed() const { return allowed_; }

 private:
  bool allowed_;
};
bool process_ends();

// Marks the first use of a library's code, which may make static objects and hold locks, while it lives. exit() destroys the newest
// static objects first, and runs functions registered by std::atexit in the same order. So each first use registers the wait for
// other threads at its end (watch_end_after): it then runs before the new objects are destroyed. An exit() in the main thread waits
// for first uses that have not ended, for ten seconds at most, and so does fork().
class FirstUse : LocalGuard {
 public:
  [[nodiscard]] explicit FirstUse(bool is_first = true);
  bool is_first() const { return no_fork_.has_value(); }
  // Registers the wait, once for each name of code.
  static void watch_end_after(std::string_view code);

 private:
  std::optional<NoFork> no_fork_;
};

// Returns the T of this thread, made at its first use and deleted when the thread ends. A destructor that runs after that gets a
// new T, which is never deleted.
template <class T>
T& of_this_thread() {
  static thread_local constinit T* own = nullptr;
  if (!own) [[unlikely]] {
    struct Freed {
      ~Freed() { delete std::exchange(own, nullptr); }
    };
    static thread_local Freed freed;
    (void)freed;
    own = new T();
  }
  return *own;
}

}  // namespace halfstep
