// SPDX-License-Identifier: Apache-2.0
// Arguments of ops with sliding windows: one number, or one for each spatial dimension, checked.
#pragma once

#include <string_view>

#include "framework/backend/layer_args.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/shape/views.h"

namespace halfstep {

// Largest size, step or padding, so that sums and products of two of them do not overflow.
inline constexpr int64_t kMostWindow = int64_t(1) << 30;

// Returns one number per dimension; entries beyond `dims` are `filler`. Throws ShapeError for a wrong number of entries,
// ValueError for one outside [least, kMostWindow].
Spatial per_dimension(std::string_view op, std::string_view name, const Dims& given, int dims, int64_t least, int64_t filler = 1);
// Returns the checked window of a call, whose lists have one number or one for each dimension.
Window window_of(std::string_view op, int dims, const Spatial& size, const Dims& stride, const Dims& padding, const Dims& dilation);
// Returns the positions of the window in a dimension of size `in` with `after` zeros behind it; 0 if it does not fit.
int64_t window_positions(const Window& window, size_t dim, int64_t in, int64_t after);

// Throws ShapeError for sizes beyond kMostWindow, and for too many elements: libraries count a dimension in 32 bits, and round it
// up.
void check_sizes(std::string_view op, const Shape& shape);

// Return [first, second, sizes...], and the sizes of [N, C, ...].
Shape with_spatial(int64_t first, int64_t second, const Spatial& sizes, int dims);
Spatial spatial_of(const Shape& shape, int dims);

// Returns kernel_size, stride, padding and dilation, a number for each spatial dimension.
Attributes describe(const Window& window);
// Returns the numbers of the spatial dimensions.
inline Attribute describe(std::string_view name, const Spatial& sizes, int dims) {
  return {name, std::span(sizes).first(size_t(dims))};
}

// Returns f(x) for a batch x, or f of a batch of one.
template <class F>
Tensor batched(const Tensor& x, int rank, const F& f) {
  return x.dim() == rank ? f(x) : as_result(f(x.unsqueeze(0)).squeeze(0));
}

}  // namespace halfstep
