// SPDX-License-Identifier: Apache-2.0
// What threads still do while exit() destroys static objects, those of libraries included.
#pragma once

#include <string_view>
#include <utility>

namespace halfstep {

// Work that needs a library's static objects, oneDNN's generated code among them. exit() waits for it before it destroys these, for
// ten seconds at most. What begins later is not allowed and must do without the library; then process_ends() is true and stays so.
class BeforeEnd {
 public:
  [[nodiscard]] BeforeEnd();
  ~BeforeEnd();
  BeforeEnd(const BeforeEnd&) = delete;
  BeforeEnd& operator=(const BeforeEnd&) = delete;
  bool allowed() const { return allowed_; }

 private:
  bool allowed_;
};
bool process_ends();

// A first use of a library's code, which may make static objects. exit() destroys the newest objects first, and shall come here
// before it destroys any of these: in the main thread it waits for first uses that are under way, and each says at its end which
// code it used. A name that was seen before does nothing.
class FirstUse {
 public:
  [[nodiscard]] explicit FirstUse(bool is_first = true);
  ~FirstUse();
  FirstUse(const FirstUse&) = delete;
  FirstUse& operator=(const FirstUse&) = delete;
  bool is_first() const { return is_first_; }
  static void watch_end_after(std::string_view code);

 private:
  bool is_first_;
};

// Returns the T of this thread, made at its first use and deleted when the thread ends. For destructors that run later it is made
// anew and kept.
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
