// SPDX-License-Identifier: Apache-2.0
#include "cuda/gpu.cuh"
#include "cuda/runtime.h"

namespace halfstep::cuda {

thread_local LaunchWatcher* launch_watcher = nullptr;

void check_launch(cudaError_t error) {
  if (error != cudaSuccess) check_cuda(error, "a kernel launch");
}

int64_t resident_threads() {
  static const int64_t resident = [] {  // computed once, because every launch needs it: for the device that is current then
    int device = 0, processors = 1, threads = 2048;  // kept where CUDA does not answer
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device);
    return int64_t(processors) * threads;
  }();
  return resident;
}

}  // namespace halfstep::cuda
