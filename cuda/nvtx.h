// SPDX-License-Identifier: Apache-2.0
// Ranges for NVIDIA's profilers. No CUDA headers here: framework/backend/registry.cpp includes this.
#pragma once

namespace halfstep::cuda {

// Calls (framework/backend/observe.h) become NVTX ranges if a profiler started this process with its library in the
// environment (NVTX_INJECTION64_PATH), as Nsight Systems and Nsight Compute do. Without a profiler, an op
// only reads a variable. Call before the first op.
void show_ranges_to_profiler();

}  // namespace halfstep::cuda
