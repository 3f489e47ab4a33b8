#include "cuda/gpu.cuh"
#include "framework/base/check.h"

namespace halfstep::cuda {

void check_launch(cudaError_t error) {
  if (error != cudaSuccess) fail<DeviceError>("cuda", "a kernel launch must succeed, got: ", cudaGetErrorString(error));
}

int sm_count() {
  int device = 0, count = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

}  // namespace halfstep::cuda
