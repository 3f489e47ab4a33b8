// SPDX-License-Identifier: Apache-2.0
// Notifies a watcher of everything that enters a recording: every launch, and memory that is used otherwise.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace halfstep::cuda {

// A kernel's launch. `arguments`: pointers to its arguments, in the types of the parameters.
struct KernelLaunch {
  const void* kernel;
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
  const void* const* arguments;
  const size_t* sizes;
  size_t count;
};

class LaunchWatcher {
 public:
  virtual void launched(const KernelLaunch& launch) = 0;  // by launch() of cuda/gpu.cuh
  virtual void uses_fixed(const void* memory) = 0;    // by all other work: it uses this memory at a fixed address

 protected:
  ~LaunchWatcher() = default;
};
extern thread_local LaunchWatcher* launch_watcher;  // null unless this thread records work

}  // namespace halfstep::cuda
