// SPDX-License-Identifier: Apache-2.0
// Fractional max pooling (Graham, 2014, arXiv:1412.6071): windows of one size at random steps, so that sizes shrink by factors
// that need not be integers.
#pragma once

#include <utility>

#include "framework/base/generator.h"
#include "framework/ops/window/resample.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Takes exactly one of output_size and output_ratio: one number for all spatial dimensions, or one each.
struct FractionalMaxPoolOptions {
  Dims output_size{};
  ScaleFactors output_ratio{};  // in (0, 1): sizes become floor(in * output_ratio)
  // [N, C, dimensions], floating, in [0, 1): the positions of the windows. Undefined: drawn from `generator`, or from the default
  // one. As in PyTorch, the first number is for the width of an image, or the depth of a volume.
  Tensor random_samples = {};
  Generator* generator = nullptr;
};

// Returns the largest element of each window. x is [N, C, in...] or [C, in...]. With u a random number for each plane and
// dimension, and a = (in - kernel) / (out - 1), window i begins at floor((i + u) a) - floor(u a), and the last one ends at the
// end. Throws ShapeError if out + kernel - 1 > in, ValueError for options that are missing or given twice.
Tensor fractional_max_pool2d(const Tensor& x, const Dims& kernel_size, const FractionalMaxPoolOptions& options);
Tensor fractional_max_pool3d(const Tensor& x, const Dims& kernel_size, const FractionalMaxPoolOptions& options);
// Returns also its index in the input's plane, row-major, int64.
std::pair<Tensor, Tensor> fractional_max_pool2d_with_indices(const Tensor& x, const Dims& kernel_size,
                                                             const FractionalMaxPoolOptions& options);
std::pair<Tensor, Tensor> fractional_max_pool3d_with_indices(const Tensor& x, const Dims& kernel_size,
                                                             const FractionalMaxPoolOptions& options);

}  // namespace halfstep
