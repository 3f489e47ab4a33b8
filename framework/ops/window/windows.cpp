// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/window/windows.h"

#include "framework/base/check.h"

namespace halfstep {

Spatial per_dimension(std::string_view op, std::string_view name, const Dims& given, int dims, int64_t least, int64_t filler) {
  check<ShapeError>(given.size() == 1 || given.size() == dims, op, name, " must be one number or ", dims, ", got ", given);
  Spatial numbers{filler, filler, filler};
  for (int d = 0; d < dims; ++d) {
    const int64_t number = given.size() == 1 ? given[0] : given[d];
    check<ValueError>(number >= least && number <= kMostWindow, op, name, " must be between ", least, " and ", kMostWindow,
                      ", got ", given);
    numbers[size_t(d)] = number;
  }
  return numbers;
}

Window window_of(std::string_view op, int dims, const Spatial& size, const Dims& stride, const Dims& padding,
                 const Dims& dilation) {
  for (int d = 0; d < dims; ++d) {
    check<ShapeError>(size[size_t(d)] >= 1 && size[size_t(d)] <= kMostWindow, op, "kernel sizes must be between 1 and ",
                      kMostWindow, ", got ", size[size_t(d)]);
  }
  return {.dims = dims,
          .size = size,
          .stride = per_dimension(op, "stride", stride, dims, 1),
          .padding = per_dimension(op, "padding", padding, dims, 0, 0),
          .dilation = per_dimension(op, "dilation", dilation, dims, 1)};
}

int64_t window_positions(const Window& window, size_t dim, int64_t in, int64_t after) {
  const int64_t room = in + window.padding[dim] + after - window.dilation[dim] * (window.size[dim] - 1) - 1;
  return room < 0 ? 0 : room / window.stride[dim] + 1;
}

void check_sizes(std::string_view op, const Shape& shape) {
  for (int64_t n : shape)
    check<ShapeError>(n <= kMostWindow, op, "sizes of input, weight and result must be at most ", kMostWindow, ", got ", shape);
  check_size(op, shape);
}

Shape with_spatial(int64_t first, int64_t second, const Spatial& sizes, int dims) {
  Shape s{first, second};
  for (int d = 0; d < dims; ++d) s.push_back(sizes[size_t(d)]);
  return s;
}

Spatial spatial_of(const Shape& shape, int dims) {
  Spatial s{1, 1, 1};
  for (int d = 0; d < dims; ++d) s[size_t(d)] = shape[2 + d];
  return s;
}

Attributes describe(const Window& window) {
  return {describe("kernel_size", window.size, window.dims), describe("stride", window.stride, window.dims),
          describe("padding", window.padding, window.dims), describe("dilation", window.dilation, window.dims)};
}

}  // namespace halfstep
