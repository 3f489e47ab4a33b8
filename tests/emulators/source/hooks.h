// SPDX-License-Identifier: Apache-2.0
// Hooks between the parts of the emulator: the place of the running kernel, and functions called at its events.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emu {

// The running thread's place, as far as it orders memory accesses.
struct Where {
  uint32_t launch = 0;
  uint32_t block = 0;       // within the launch
  uint32_t epoch = 0;       // block barriers passed in the block
  uint32_t warp_epoch = 0;  // warp barriers passed by the warp in the block
  int32_t thread = -1;      // within the block
  bool in_kernel = false;   // kernel code is running, not the emulator or the host
};
extern thread_local Where where;               // each host thread may run kernels, one at a time
extern const char *stacks_begin, *stacks_end;  // the fibers' stacks: private to their threads

// Disables checks inside the emulator, since standard templates may be linked from instrumented files.
struct InsideEmulator {
  InsideEmulator() { where.in_kernel = false; }
  ~InsideEmulator() { where.in_kernel = true; }
};

// Returns the fill bytes behind memory: for the 16-bit floats and f32 a NaN that arithmetic changes, so that additions to it are
// detected too.
inline char gap_byte(const char* p) { return reinterpret_cast<uintptr_t>(p) % 2 ? char(0x7F) : char(0xBF); }
inline void fill_gap(char* p, const char* end) {
  for (; p < end; ++p) *p = gap_byte(p);
}
// Returns the distance from `p` to the first changed byte, or -1.
inline ptrdiff_t changed_in_gap(const char* p, const char* end) {
  for (const char* at = p; at < end; ++at) {
    if (*at != gap_byte(at)) return at - p;
  }
  return -1;
}

// Call these around every block (shared_memory.cpp).
void begin_shared_memory(size_t dynamic_bytes);
void end_shared_memory();

// Opens device memory to the host while it lives (memory.cpp).
struct OpenDeviceMemory {
  OpenDeviceMemory();
  ~OpenDeviceMemory();
  OpenDeviceMemory(const OpenDeviceMemory&) = delete;
};

// Implemented by racecheck.cpp in race mode, else empty.
void race_forget(const void* p, size_t bytes);  // new memory: ignores earlier accesses
void race_release(const void* atomic);
void race_acquire(const void* atomic);

}  // namespace emu
