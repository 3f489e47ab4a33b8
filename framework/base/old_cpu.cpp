// SPDX-License-Identifier: Apache-2.0
// Compiled for any x86-64 (CMakeLists.txt), so it includes nothing that others compile for newer CPUs.
#include "framework/base/old_cpu.h"

namespace halfstep {

const char* lacking_instructions() noexcept {
#if defined(HALFSTEP_NEEDS_V2) && defined(__GNUC__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("ssse3")) return "SSSE3";
  if (!__builtin_cpu_supports("sse4.1")) return "SSE4.1";
  if (!__builtin_cpu_supports("sse4.2")) return "SSE4.2";
  if (!__builtin_cpu_supports("popcnt")) return "POPCNT";
#endif
  return nullptr;
}

}  // namespace halfstep
