// SPDX-License-Identifier: Apache-2.0
// Pixels of few channels as packs of 8 bytes, for the library's convolutions.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace halfstep::cuda {

// Computes to[p][c] = from[p][c] for c < channels, and 0 for the rest of the 4: elements of two bytes, `to` aligned to 8.
void widen_pixels(CUstream_st* stream, const void* from, void* to, int64_t pixels, int channels);
// The reverse: from[p][c] for c < channels.
void narrow_pixels(CUstream_st* stream, const void* from, void* to, int64_t pixels, int channels);

}  // namespace halfstep::cuda
