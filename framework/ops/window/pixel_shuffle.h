// SPDX-License-Identifier: Apache-2.0
// Moves elements between channels and space.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// [..., C r^2, H, W] -> [..., C, H r, W r]
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor);
// [..., C, H r, W r] -> [..., C r^2, H, W]
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor);
// [N, C, ...]: channel i of group g becomes channel i groups + g.
Tensor channel_shuffle(const Tensor& x, int64_t groups);

}  // namespace halfstep
