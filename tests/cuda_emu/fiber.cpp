#include "fiber.h"

#if !defined(__x86_64__)
#error "the CUDA emulator switches stacks in x86-64 assembly"
#endif

#ifdef __SANITIZE_ADDRESS__
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t bytes);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_bottom, size_t* old_bytes);
}
#else
static void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
static void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
#endif

// Pushes the registers that a function must keep, stores the stack pointer in *save, and goes on with those of `load`.
extern "C" void emu_switch_stack(void** save, void* load);
asm(R"(
.text
.globl emu_switch_stack
.type emu_switch_stack,@function
emu_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch_stack,.-emu_switch_stack
)");

namespace emu {
namespace {

void* caller_pointer;
void* caller_fake_stack;
const void* caller_bottom;
size_t caller_bytes;

constexpr int kKeptRegisters = 6;

}  // namespace

void Fiber::resume() {
  if (!stack_pointer_) {
    void** top = reinterpret_cast<void**>(stack_ + bytes_ - 64);
    *--top = nullptr;  // where entry would return to; also aligns the stack as after a call
    *--top = reinterpret_cast<void*>(entry_);
    for (int i = 0; i < kKeptRegisters; ++i) *--top = nullptr;
    stack_pointer_ = top;
  }
  __sanitizer_start_switch_fiber(&caller_fake_stack, stack_, bytes_);
  emu_switch_stack(&caller_pointer, stack_pointer_);
  __sanitizer_finish_switch_fiber(caller_fake_stack, nullptr, nullptr);
}

void Fiber::suspend() {
  __sanitizer_start_switch_fiber(&fake_stack_, caller_bottom, caller_bytes);
  emu_switch_stack(&stack_pointer_, caller_pointer);
  __sanitizer_finish_switch_fiber(fake_stack_, &caller_bottom, &caller_bytes);
}

void Fiber::entered() { __sanitizer_finish_switch_fiber(nullptr, &caller_bottom, &caller_bytes); }

}  // namespace emu
