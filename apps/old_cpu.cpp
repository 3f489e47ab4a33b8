// SPDX-License-Identifier: Apache-2.0
// Ends the program on a CPU that cannot run it, with a line in place of SIGILL. Compiled for any x86-64 (CMakeLists.txt).
#include "framework/base/old_cpu.h"

#if defined(HALFSTEP_NEEDS_V2)
#include <string.h>
#include <unistd.h>

namespace {

constexpr int kDevice = 5;  // apps/exit_codes.h, which includes what is compiled for newer CPUs

void say(const char* text) { [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, strlen(text)); }

// Runs before the constructors of all other static objects.
__attribute__((constructor(101))) void stop_on_an_old_cpu() {
  const char* const lacking = halfstep::lacking_instructions();
  if (!lacking) return;
  say("halfstep: [cpu] needs a CPU of x86-64-v2, as made since about 2009, got one without ");
  say(lacking);
  say("\n");
  _exit(kDevice);
}

}  // namespace
#endif
