// SPDX-License-Identifier: Apache-2.0
// Compiled for any x86-64 (CMakeLists.txt), so it includes nothing that others compile for newer CPUs.
#include "framework/base/old_cpu.h"

#if defined(HALFSTEP_NEEDS_V2)
#include <string.h>
#include <unistd.h>

namespace halfstep {
namespace {

constexpr int kDevice = 5;  // apps/exit_codes.h

const char* lacking_instructions() noexcept {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("ssse3")) return "SSSE3";
  if (!__builtin_cpu_supports("sse4.1")) return "SSE4.1";
  if (!__builtin_cpu_supports("sse4.2")) return "SSE4.2";
  if (!__builtin_cpu_supports("popcnt")) return "POPCNT";
  return nullptr;
}

void say(const char* text) { [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, strlen(text)); }

// A function that a header declares would lose the priority.
__attribute__((constructor(101))) void before_static_objects() { stop_on_an_old_cpu(); }

}  // namespace

void stop_on_an_old_cpu() noexcept {
  const char* const lacking = lacking_instructions();
  if (!lacking) return;
  say("halfstep: [cpu] needs a CPU of x86-64-v2, as made since about 2009, got one without ");
  say(lacking);
  say("\n");
  _exit(kDevice);
}

}  // namespace halfstep
#else
namespace halfstep {
void stop_on_an_old_cpu() noexcept {}
}  // namespace halfstep
#endif
