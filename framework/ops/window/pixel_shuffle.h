// SPDX-License-Identifier: Apache-2.0
// Moves elements between channels and space, or from channel to channel.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Moves channels into space, r = upscale_factor: [..., C r^2, H, W] -> [..., C, H r, W r].
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor);
// Undoes pixel_shuffle, r = downscale_factor: [..., C, H r, W r] -> [..., C r^2, H, W].
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor);
// Interleaves the groups of channels of x [N, C, ...]: channel i of group g becomes channel i * groups + g.
Tensor channel_shuffle(const Tensor& x, int64_t groups);

}  // namespace halfstep
