// SPDX-License-Identifier: Apache-2.0
// CMakeLists.txt compiles this file for any x86-64. So it includes no header with inline functions: the linker may take a copy of
// those that another file compiled for newer CPUs.
#include "framework/base/old_cpu.h"

#if defined(HALFSTEP_NEEDS_V2)
#include <string.h>
#include <unistd.h>

namespace halfstep {
namespace {

constexpr int kDeviceExitCode = 5;  // kDevice of apps/exit_codes.h

// Returns the first instruction set that the CPU lacks; null if it has all.
const char* missing_instructions() noexcept {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("ssse3")) return "SSSE3";
  if (!__builtin_cpu_supports("sse4.1")) return "SSE4.1";
  if (!__builtin_cpu_supports("sse4.2")) return "SSE4.2";
  if (!__builtin_cpu_supports("popcnt")) return "POPCNT";
  return nullptr;
}

void print(const char* text) { [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, strlen(text)); }

// Runs first among the constructors: 101 is the first priority that is not reserved. It calls a function of its own, because the
// compiler ignores the priority of one that a header has declared.
__attribute__((constructor(101))) void before_static_objects() { stop_on_an_old_cpu(); }

}  // namespace

void stop_on_an_old_cpu() noexcept {
  const char* const missing = missing_instructions();
  if (!missing) return;
  print("halfstep: [cpu] needs a CPU of x86-64-v2, as made since about 2009, got one without ");
  print(missing);
  print("\n");
  _exit(kDeviceExitCode);
}

}  // namespace halfstep
#else
namespace halfstep {
void stop_on_an_old_cpu() noexcept {}
}  // namespace halfstep
#endif
