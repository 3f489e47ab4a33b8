// SPDX-License-Identifier: Apache-2.0
// The emulator's functions with a thread of the host for each thread of a kernel, all blocks at the same time, for the thread
// sanitizer: kernels whose blocks wait for each other run with real concurrency. cuda/gpu.cuh includes this in place of the header
// of tests/emulators/source.
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
