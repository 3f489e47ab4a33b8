// A learning rate schedule on the device.
#include "cuda/gpu.cuh"
#include "cuda/kernels/kernels.h"

namespace halfstep::cuda {
namespace {

// One block.
__global__ void advance_rates_kernel(int64_t* count, const float* found_inf, const double* table, int64_t width, double* rates,
                                     int64_t groups) {
  const int64_t steps = *count + (found_inf && *found_inf != 0 ? 0 : 1);
  __syncthreads();  // all have read the count
  if (threadIdx.x == 0) *count = steps;
  for (int64_t g = threadIdx.x; g < groups; g += blockDim.x) rates[g] = table[g * width + steps % width];
}

}  // namespace

void advance_rates(const Queue& q, int64_t* count, const float* found_inf, const TensorView& table, const TensorView& rates) {
  launch(advance_rates_kernel, 1, 32, 0, q.stream, count, found_inf, table.as<const double>(), table.shape[1], rates.as<double>(),
         rates.numel());
}

}  // namespace halfstep::cuda
