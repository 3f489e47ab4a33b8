// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/divisor.cuh"
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

constexpr int kBlockChannels = 16, kPack = 8;

union BlockPack {
  uint4 word;
  uint16_t channel[kPack];
};

// PixelBlocks for the kernels.
struct Blocks {
  int height, width, row_shift, column_shift;
  Divisor<int32_t> rows, columns, pixel_rows, pixel_columns;

  Blocks(const PixelBlocks& b)
      : height(int(b.height)),
        width(int(b.width)),
        row_shift(b.row_shift),
        column_shift(b.column_shift),
        rows(int32_t(b.block_rows)),
        columns(int32_t(b.block_columns)),
        pixel_rows(int32_t(b.height)),
        pixel_columns(int32_t(b.width)) {}
};

// A thread makes half of a block, so that neighbouring threads store neighbouring packs.
template <int Channels>
__global__ void __launch_bounds__(kThreads) gather_kernel(const uint16_t* from, uint4* to, Blocks b, int packs) {
  const int step = int(gridDim.x * blockDim.x);
  for (int k = int(blockIdx.x * blockDim.x + threadIdx.x); k < packs; k += step) {
    const int block = k / 2, half = k % 2, line = quotient(block, b.columns), image = quotient(line, b.rows);
    const int y = 2 * (line - image * b.rows) - b.row_shift, x = 2 * (block - line * b.columns) - b.column_shift;
    const int64_t plane = int64_t(image) * b.height;
    BlockPack pack;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const int channel = half * kPack + j, pixel = channel / Channels;
      const int row = y + pixel / 2, column = x + pixel % 2;
      const bool inside = pixel < 4 && row >= 0 && row < b.height && column >= 0 && column < b.width;
      pack.channel[j] = inside ? from[((plane + row) * b.width + column) * Channels + channel % Channels] : uint16_t(0);
    }
    to[k] = pack.word;
  }
}

template <int Channels>
__global__ void __launch_bounds__(kThreads) scatter_kernel(const uint16_t* from, uint16_t* to, Blocks b, int pixels) {
  const int step = int(gridDim.x * blockDim.x);
  for (int p = int(blockIdx.x * blockDim.x + threadIdx.x); p < pixels; p += step) {
    const int line = quotient(p, b.pixel_columns), image = quotient(line, b.pixel_rows);
    const int y = line - image * b.pixel_rows + b.row_shift, x = p - line * b.pixel_columns + b.column_shift;
    const bool inside = y / 2 < b.rows && x / 2 < b.columns;
    const int64_t block = (int64_t(image) * b.rows + y / 2) * b.columns + x / 2;
    const int first = (2 * (y % 2) + x % 2) * Channels;
#pragma unroll
    for (int c = 0; c < Channels; ++c)
      to[int64_t(p) * Channels + c] = inside ? from[block * kBlockChannels + first + c] : uint16_t(0);
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

void gather_blocks(CUstream_st* stream, const void* from, void* to, const PixelBlocks& b) {
  const int packs = int(b.images * b.block_rows * b.block_columns * (kBlockChannels / kPack));
  launch(b.channels == 3 ? gather_kernel<3> : gather_kernel<4>, blocks_for(packs, kThreads), kThreads, 0, stream,
         static_cast<const uint16_t*>(from), static_cast<uint4*>(to), Blocks(b), packs);
}

void scatter_blocks(CUstream_st* stream, const void* from, void* to, const PixelBlocks& b) {
  const int pixels = int(b.images * b.height * b.width);
  launch(b.channels == 3 ? scatter_kernel<3> : scatter_kernel<4>, blocks_for(pixels, kThreads), kThreads, 0, stream,
         static_cast<const uint16_t*>(from), static_cast<uint16_t*>(to), Blocks(b), pixels);
}

}  // namespace halfstep::cuda
