// SPDX-License-Identifier: Apache-2.0
// Between the parts of the emulator: where the running kernel is, and functions to call at its events.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emu {

// The running thread's place, as far as it orders memory accesses. Counts start anew where noted.
struct Where {
  uint32_t launch = 0;
  uint32_t block = 0;       // within the launch
  uint32_t epoch = 0;       // block barriers passed in the block
  uint32_t warp_epoch = 0;  // warp barriers passed by the warp in the block
  int32_t thread = -1;      // within the block
  bool in_kernel = false;   // kernel code runs now, not the emulator and not the host
};
extern thread_local Where where;               // each thread of the host may run kernels, one thread at a time
extern const char *stacks_begin, *stacks_end;  // the fibers' stacks: private to their threads

// Standard templates may be linked from instrumented files: inside the emulator nothing is checked.
struct InsideEmulator {
  InsideEmulator() { where.in_kernel = false; }
  ~InsideEmulator() { where.in_kernel = true; }
};

// The values after the end of memory: for the 16-bit floats and f32 a NaN that arithmetic changes, so that a sum into it is
// noticed, too.
inline char gap_byte(const char* p) { return reinterpret_cast<uintptr_t>(p) % 2 ? char(0x7F) : char(0xBF); }
inline void fill_gap(char* p, const char* end) {
  for (; p < end; ++p) *p = gap_byte(p);
}
// How far behind `p` the first changed byte is, or -1.
inline ptrdiff_t changed_in_gap(const char* p, const char* end) {
  for (const char* at = p; at < end; ++at) {
    if (*at != gap_byte(at)) return at - p;
  }
  return -1;
}

// Around every block (shared_memory.cpp).
void begin_shared_memory(size_t dynamic_bytes);
void end_shared_memory();

// Device memory is open to the host only while one of these lives (memory.cpp).
struct OpenDeviceMemory {
  OpenDeviceMemory();
  ~OpenDeviceMemory();
  OpenDeviceMemory(const OpenDeviceMemory&) = delete;
};

// racecheck.cpp in race mode, else nothing.
void race_forget(const void* p, size_t bytes);  // new memory: earlier accesses do not count
void race_release(const void* atomic);
void race_acquire(const void* atomic);

}  // namespace emu
