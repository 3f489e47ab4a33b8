// SPDX-License-Identifier: Apache-2.0
// Samples an image at the points of a grid. Names, defaults and errors' conditions are PyTorch's.
#pragma once

#include "framework/backend/layer_args.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns x at the points of a grid. x [N, C, H, W], grid [N, H', W', 2] -> [N, C, H', W'], or x [N, C, D, H, W], grid [N, D', H',
// W', 3] -> [N, C, D', H', W']. grid's last dimension is x, y(, z), with -1 and 1 the outer edges of the corner elements
// (align_corners: their centers). mode: bilinear (trilinear), nearest, bicubic (4-D only); padding: elements outside are 0, the
// border's or mirrored. autocast: promote
Tensor grid_sample(const Tensor& x, const Tensor& grid, const SampleArgs& options = {});

// Returns the grid whose point (x, y(, z)) is theta [x, y(, z), 1]: theta [N, 2, 3], size [N, C, H, W] -> [N, H, W, 2], or theta
// [N, 3, 4], size [N, C, D, H, W] -> [N, D, H, W, 3].
Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners = false);

}  // namespace halfstep
