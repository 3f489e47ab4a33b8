// SPDX-License-Identifier: Apache-2.0
// Pixels of few channels as packs of 8 or 32 bytes, for the library's convolutions. All elements have two bytes.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace halfstep::cuda {

// Computes to[p][c] = from[p][c] for c < channels, and 0 for the rest of the 4; `to` is aligned to 8.
void widen_pixels(CUstream_st* stream, const void* from, void* to, int64_t pixels, int channels);
// The reverse: from[p][c] for c < channels.
void narrow_pixels(CUstream_st* stream, const void* from, void* to, int64_t pixels, int channels);

// Images [images, height, width, channels] and their blocks of 2 x 2 pixels, [images, block_rows, block_columns, 16]: channel
// (2 ry + rx) channels + c of block (Y, X) is channel c of pixel (2 Y + ry - row_shift, 2 X + rx - column_shift). channels: 3 or 4;
// there are fewer than 2^31 pixels and packs of 8 channels.
struct PixelBlocks {
  int64_t images, height, width, channels, block_rows, block_columns;
  int row_shift, column_shift;
};
// Fills blocks with their pixels; what is no pixel is 0. `to` is aligned to 16.
void gather_blocks(CUstream_st* stream, const void* from, void* to, const PixelBlocks& blocks);
// The reverse; a pixel without a block is 0.
void scatter_blocks(CUstream_st* stream, const void* from, void* to, const PixelBlocks& blocks);

}  // namespace halfstep::cuda
