// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/elementwise/packs.cuh"
#include "cuda/kernels/pixels.h"

namespace halfstep::cuda {
namespace {

constexpr int kThreads = 256, kWide = 4;

union Pixel {
  uint2 word;
  uint16_t channel[kWide];
};

// Neighbouring threads have neighbouring pixels, so that one thread reads from the cache what another left of a sector.
__global__ void __launch_bounds__(kThreads) widen_kernel(const uint16_t* from, uint2* to, int64_t pixels, int channels) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
#pragma unroll 4
  for (int64_t p = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; p < pixels; p += step) {
    Pixel pixel;
#pragma unroll
    for (int c = 0; c < kWide; ++c) pixel.channel[c] = c < channels ? from[p * channels + c] : uint16_t(0);
    to[p] = pixel.word;
  }
}

__global__ void __launch_bounds__(kThreads) narrow_kernel(const uint2* from, uint16_t* to, int64_t pixels, int channels) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t p = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; p < pixels; p += step) {
    Pixel pixel;
    pixel.word = from[p];
#pragma unroll
    for (int c = 0; c < kWide; ++c)
      if (c < channels) to[p * channels + c] = pixel.channel[c];
  }
}

}  // namespace

void widen_pixels(CUstream_st* stream, const void* from, void* to, int64_t pixels, int channels) {
  launch(widen_kernel, blocks_for(pixels, kThreads), kThreads, 0, stream, static_cast<const uint16_t*>(from),
         static_cast<uint2*>(to), pixels, channels);
}

void narrow_pixels(CUstream_st* stream, const void* from, void* to, int64_t pixels, int channels) {
  launch(narrow_kernel, blocks_for(pixels, kThreads), kThreads, 0, stream, static_cast<const uint2*>(from),
         static_cast<uint16_t*>(to), pixels, channels);
}

}  // namespace halfstep::cuda
