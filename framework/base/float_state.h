// SPDX-License-Identifier: Apache-2.0
// The rounding mode of this thread, and whether it keeps numbers too small for full precision (denormals).
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

#include "framework/base/guard.h"

namespace halfstep {

// Gives this thread the state that a program begins with, while it lives: round to nearest, keep denormals, trap nothing. So
// results depend neither on the state of the caller, which audio code and -ffast-math change, nor on which thread computes a part.
// The destructor restores the caller's state.
class FloatState : LocalGuard {
 public:
#if defined(__x86_64__)
  [[nodiscard]] FloatState() : before_(_mm_getcsr()) {
    if ((before_ & ~kFlags) != kPlain) [[unlikely]]
      _mm_setcsr(kPlain);
  }
  ~FloatState() {
    if ((before_ & ~kFlags) != kPlain) [[unlikely]]
      _mm_setcsr(before_);
  }
  bool was_plain() const { return (before_ & ~kFlags) == kPlain; }

 private:
  // Bits of the register MXCSR: the exceptions that have occurred; the state that a program begins with.
  static constexpr unsigned kFlags = 0x3f, kPlain = 0x1f80;
  unsigned before_;
#elif defined(__aarch64__)
  [[nodiscard]] FloatState() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    if (before_ != 0) [[unlikely]] {
      asm volatile("msr fpcr, %0" ::"r"(uint64_t(0)));
    }
  }
  ~FloatState() {
    if (before_ != 0) [[unlikely]] {
      asm volatile("msr fpcr, %0" ::"r"(before_));
    }
  }
  bool was_plain() const { return before_ == 0; }

 private:
  uint64_t before_;  // the register FPCR; a program begins with 0
#else
  [[nodiscard]] FloatState() : before_(std::fegetround()) {
    if (!was_plain()) std::fesetround(FE_TONEAREST);
  }
  ~FloatState() {
    if (!was_plain()) std::fesetround(before_);
  }
  bool was_plain() const { return before_ == FE_TONEAREST; }

 private:
  int before_;  // only the rounding mode
#endif

 public:
};

}  // namespace halfstep
