#include "cuda/gpu.cuh"
#include "cuda/runtime.h"

namespace halfstep::cuda {

LaunchWatcher* launch_watcher = nullptr;

void check_launch(cudaError_t error) {
  if (error != cudaSuccess) check_cuda(error, "a kernel launch");
}

int sm_count() {
  static const int processors = [] {  // asked once: every launch wants it
    int device = 0, count = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
  }();
  return processors;
}

}  // namespace halfstep::cuda
