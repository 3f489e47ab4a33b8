// SPDX-License-Identifier: Apache-2.0
// The emulator's functions for the thread sanitizer, with a host thread for each thread of a kernel and all blocks at the same
// time: kernels whose blocks wait for each other run with real concurrency. cuda/gpu.cuh includes this instead of the header in
// tests/emulators/source.
#pragma once

#include "tests/emulators/source/emulator.h"

namespace emu {

struct Place {
  uint3 thread, block;
  dim3 threads, blocks;
};
extern thread_local Place place;

}  // namespace emu

#define threadIdx emu::place.thread
#define blockIdx emu::place.block
#define blockDim emu::place.threads
#define gridDim emu::place.blocks
