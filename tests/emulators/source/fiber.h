// SPDX-License-Identifier: Apache-2.0
// A function on a separate stack, and switches between stacks. x86-64; notifies ASan of each switch.
//
// Kernels switch far more often than they compute. A switch invalidates the processor's prediction of returns: so it is a jump,
// not a return, and inline, so that few returns follow it.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#error "the CUDA emulator switches stacks in x86-64 assembly"
#endif

#ifdef __SANITIZE_ADDRESS__
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t bytes);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_bottom, size_t* old_bytes);
}
#else
inline void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
inline void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
#endif

namespace emu {

// Stores the stack pointer in *save and continues where `load` was stored. Registers that the compiler does not save go to the
// stack, below the 128 bytes that a function may use without moving the pointer.
[[gnu::always_inline]] inline void switch_stack(void** save, void* load) {
  asm volatile(R"(
  leaq -128(%%rsp), %%rsp
  pushq %%rbp
  pushq %%rbx
  leaq 1f(%%rip), %%rax
  pushq %%rax
  movq %%rsp, (%0)
  movq %1, %%rsp
  popq %%rax
  jmp *%%rax
1:
  popq %%rbx
  popq %%rbp
  leaq 128(%%rsp), %%rsp
)"
               : "+D"(save), "+S"(load)
               :
               : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",
                 "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc", "memory");
}

class Fiber {
 public:
  // Calls `entry`, which must never return, on the first switch to the fiber. Switches happen only between the caller of resume()
  // and the fiber.
  Fiber(char* stack, size_t bytes, void (*entry)()) : stack_(stack), bytes_(bytes) {
    void** top = reinterpret_cast<void**>(stack_ + bytes_ - 64);
    *--top = nullptr;  // return address of entry; also aligns the stack as after a call
    *--top = reinterpret_cast<void*>(entry);
    stack_pointer_ = top;
  }

  // Switches from caller to fiber; returns at the fiber's next suspend().
  [[gnu::always_inline]] void resume() {
    __sanitizer_start_switch_fiber(&caller_fake_stack, stack_, bytes_);
    switch_stack(&caller_pointer, stack_pointer_);
    __sanitizer_finish_switch_fiber(caller_fake_stack, nullptr, nullptr);
  }
  // Switches from fiber to caller.
  [[gnu::always_inline]] void suspend() {
    __sanitizer_start_switch_fiber(&fake_stack_, caller_bottom, caller_bytes);
    switch_stack(&stack_pointer_, caller_pointer);
    __sanitizer_finish_switch_fiber(fake_stack_, &caller_bottom, &caller_bytes);
  }
  // Must be the first statement of `entry`.
  static void entered() { __sanitizer_finish_switch_fiber(nullptr, &caller_bottom, &caller_bytes); }

 private:
  static inline void* caller_pointer;
  static inline void* caller_fake_stack;
  static inline const void* caller_bottom;
  static inline size_t caller_bytes;

  char* stack_;
  size_t bytes_;
  void* stack_pointer_;
  void* fake_stack_ = nullptr;
};

}  // namespace emu
