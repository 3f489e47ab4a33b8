// SPDX-License-Identifier: Apache-2.0
// Sums over ranks, in the order of the ranks.
#include "cuda/kernels/elementwise/packs.cuh"
#include "cuda/kernels/rank_sum.h"

namespace halfstep::cuda {
namespace {

constexpr int kThreads = 256;

// Sums `packs` times N neighbours.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    sum_ranks_kernel(const T* own, const T* others, T* out, int64_t packs, int64_t stride, int ranks, int me) {
  for (int64_t p = int64_t(blockIdx.x) * kThreads + threadIdx.x; p < packs; p += int64_t(gridDim.x) * kThreads) {
    typename ComputeOf<T>::type sum[N], x[N];
    load_pack((me == 0 ? own : others) + p * N, sum);
    for (int r = 1; r < ranks; ++r) {
      load_pack((r == me ? own : others + r * stride) + p * N, x);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += x[j];
    }
    store_pack(out + p * N, sum);
  }
}

template <class T>
void sum_typed(CUstream_st* stream, const T* own, const T* others, T* out, int64_t count, int64_t stride, int ranks, int me) {
  constexpr int kPack = Pack<T>::kSize;
  const bool aligned = aligned16(own) && aligned16(others) && aligned16(out) && stride % kPack == 0;
  const int64_t packs = aligned ? count / kPack : 0, done = packs * kPack, rest = count - done;
  if (packs > 0)
    launch(sum_ranks_kernel<T, kPack>, blocks_for(packs, kThreads), kThreads, 0, stream, own, others, out, packs, stride, ranks,
           me);
  if (rest > 0)
    launch(sum_ranks_kernel<T, 1>, blocks_for(rest, kThreads), kThreads, 0, stream, own + done, others + done, out + done, rest,
           stride, ranks, me);
}

}  // namespace

void sum_ranks(CUstream_st* stream, DType dtype, const void* own, const void* others, void* out, int64_t count, int64_t stride,
               int ranks, int me) {
  const auto as = [&](auto zero) {
    using T = decltype(zero);
    sum_typed(stream, static_cast<const T*>(own), static_cast<const T*>(others), static_cast<T*>(out), count, stride, ranks, me);
  };
  switch (dtype) {
    case DType::f16: return as(__half());
    case DType::bf16: return as(__nv_bfloat16());
    case DType::f64: return as(double());
    default: return as(float());
  }
}

}  // namespace halfstep::cuda
