// A stack of its own to run a function on, and switches between stacks. x86-64; ASan is told of each switch.
#pragma once

#include <cstddef>

namespace emu {

class Fiber {
 public:
  // `entry` is called on the first switch to the fiber and must never return. Switches happen between the caller of resume()
  // and the fiber only.
  Fiber(char* stack, size_t bytes, void (*entry)()) : stack_(stack), bytes_(bytes), entry_(entry) {}

  void resume();          // caller -> fiber; returns at the fiber's next suspend()
  void suspend();         // fiber -> caller
  static void entered();  // the first statement of `entry`

 private:
  char* stack_;
  size_t bytes_;
  void (*entry_)();
  void* stack_pointer_ = nullptr;
  void* fake_stack_ = nullptr;
};

}  // namespace emu
