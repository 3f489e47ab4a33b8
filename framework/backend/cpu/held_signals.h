// SPDX-License-Identifier: Apache-2.0
// Blocks signals during oneDNN code that moves the stack pointer to the heap, where a handler's frame would overwrite memory.
#pragma once

#include <string_view>

#if defined(__unix__) || defined(__APPLE__)
#include <csignal>
#endif

#include "framework/base/guard.h"

namespace halfstep::cpu {

// Blocks this thread's signals while it lives; they are delivered at its end. Threads started inside keep them blocked.
//
// oneDNN's float32 gemm code moves the stack pointer to a buffer on the heap when a product sums over many elements. A signal
// handler's frame is written below the stack pointer, so a signal at that time overwrites the memory before the buffer. SIGINT or
// a profiler's timer then ends the program with "corrupted size vs. prev_size", or changes numbers. Found with version 2.6 on a
// CPU without AVX-512; the source is src/cpu/x64/gemm/f32/jit_avx_gemm_f32.cpp.
//
// Signals that an instruction raises itself, such as SIGSEGV, are not blocked: debuggers and the sanitizers need them.
class HeldSignals : LocalGuard {
 public:
  [[nodiscard]] explicit HeldSignals(bool needed = true) : held_(needed) {
#if defined(__unix__) || defined(__APPLE__)
    if (!held_) return;
    sigset_t set;
    sigfillset(&set);
    for (const int raised : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&set, raised);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
#endif
  }
  ~HeldSignals() {
#if defined(__unix__) || defined(__APPLE__)
    if (held_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
#endif
  }

 private:
  bool held_;
#if defined(__unix__) || defined(__APPLE__)
  sigset_t before_;
#endif
};

// Returns whether the oneDNN code of this name (impl_info_str) moves the stack pointer.
inline bool moves_stack_pointer(std::string_view code) {
#if defined(__x86_64__)
  return code.find("gemm:jit") != std::string_view::npos;
#else
  return (void)code, false;  // elsewhere that is the name of plain loops
#endif
}

}  // namespace halfstep::cpu
