// SPDX-License-Identifier: Apache-2.0
// Counts a tensor's values: each block counts in shared memory, then adds its counts to the row.
#include "cuda/kernels/elementwise/elementwise.cuh"
#include "framework/math/tally.h"

namespace halfstep::cuda {
namespace {

using Count = unsigned long long;  // of values; also the bits of a double, for atomicMax and atomicMin
constexpr unsigned kPlaces = math::kTallyAll - math::kTallyExponents;  // of the histogram

// Sets all counts to 0, and the smallest value to the largest number.
__global__ void begin_tally(int64_t* row, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) row[i] = i == math::kTallySmallest ? INT64_MAX : 0;
}

// Returns the bits of a float's magnitude as a double, which are in the order of the numbers.
__device__ inline Count double_bits(uint32_t magnitude) {
  return math::same_bits<Count>(double(math::same_bits<float>(magnitude)));
}
__device__ inline Count double_bits(uint64_t magnitude) { return magnitude; }

template <class C>
__global__ void __launch_bounds__(kThreads) tally_kernel(Operand x, Space<1> space, bool exponents, Count* row) {
  using Bits = typename math::FloatBits<C>::Bits;
  SHARED(unsigned, counts, [math::kTallyLargest]);
  SHARED(unsigned, places, [kPlaces]);
  SHARED(Count, extremes, [2]);
  if (threadIdx.x < math::kTallyLargest) counts[threadIdx.x] = 0;
  if (threadIdx.x < 2) extremes[threadIdx.x] = threadIdx.x == 0 ? 0 : Count(INT64_MAX);
  for (unsigned k = threadIdx.x; k < kPlaces; k += blockDim.x) places[k] = 0;
  __syncthreads();
  const Bits normal = Bits(math::smallest_normal_bits(x.dtype));
  unsigned own_counts[math::kTallyLargest] = {};
  Bits top = 0, bottom = ~Bits(0);
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < space.numel; i += int64_t(gridDim.x) * blockDim.x) {
    const C value = x.load_floating<C>(space.offset(i));
    const Bits magnitude = math::magnitude_bits(value);
    const bool is_negative = math::same_bits<Bits>(value) >> (8 * sizeof(Bits) - 1);
    constexpr Bits inf = math::FloatBits<C>::kInf;
    own_counts[math::kTallyNan] += magnitude > inf;
    own_counts[math::kTallyPositiveInf] += magnitude == inf && !is_negative;
    own_counts[math::kTallyNegativeInf] += magnitude == inf && is_negative;
    own_counts[math::kTallyZero] += magnitude == 0;
    if (magnitude == 0 || magnitude >= inf) continue;
    own_counts[math::kTallyNegative] += is_negative;
    own_counts[math::kTallySubnormal] += magnitude < normal;
    top = magnitude > top ? magnitude : top;
    bottom = magnitude < bottom ? magnitude : bottom;
    if (exponents) atomicAdd(&places[math::exponent_place(magnitude)], 1u);
  }
  for (int k = 0; k < math::kTallyLargest; ++k)
    if (own_counts[k]) atomicAdd(&counts[k], own_counts[k]);
  if (top) {
    atomicMax(&extremes[0], double_bits(top));
    atomicMin(&extremes[1], double_bits(bottom));
  }
  __syncthreads();
  if (threadIdx.x < math::kTallyLargest && counts[threadIdx.x]) atomicAdd(&row[threadIdx.x], Count(counts[threadIdx.x]));
  if (threadIdx.x == 0 && extremes[0]) {
    atomicMax(&row[math::kTallyLargest], extremes[0]);
    atomicMin(&row[math::kTallySmallest], extremes[1]);
  }
  if (!exponents) return;
  for (unsigned k = threadIdx.x; k < kPlaces; k += blockDim.x)
    if (places[k]) atomicAdd(&row[math::kTallyExponents + k], Count(places[k]));
}

}  // namespace

void tally(const Queue& q, const TensorView& x, bool exponents, const TensorView& row) {
  const int64_t n = row.numel();
  launch(begin_tally, unsigned((n + kThreads - 1) / kThreads), kThreads, 0, q.stream, row.as<int64_t>(), n);
  if (x.numel() == 0) return;
  const Space<1> space(x.shape, {&x.strides});
  launch(x.dtype == DType::f64 ? tally_kernel<double> : tally_kernel<float>, blocks_for(space.numel, kThreads), kThreads, 0,
         q.stream, Operand(x), space, exponents, row.as<Count>());
}

}  // namespace halfstep::cuda
