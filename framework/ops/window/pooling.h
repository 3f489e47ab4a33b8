// SPDX-License-Identifier: Apache-2.0
// Pooling. Names, defaults and errors' conditions are PyTorch's. Inputs are [N, C, in...] or [C, in...]; lists have one entry for
// all spatial dimensions, or one each.
//
//   y = max_pool2d(x, {3}, {.stride = {2}, .padding = {1}});
#pragma once

#include <initializer_list>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

struct MaxPoolOptions {
  Dims stride{};         // empty: the kernel size
  Dims padding{0};       // at most half the kernel; padded elements count as -inf
  Dims dilation{1};
  bool ceil_mode = false;
};
struct AvgPoolOptions {
  Dims stride{};
  Dims padding{0};
  bool ceil_mode = false;
  bool count_include_pad = true;                  // divide by all elements of the window, or only by those of the input
  std::optional<int64_t> divisor_override = {};   // divide by this instead
};

// Returns the largest element of each window, where NaN is largest; out = floor((in + 2 padding - dilation (kernel - 1) - 1) /
// stride) + 1, with ceil_mode rounded up as long as the last window begins inside the input or the padding before it.
Tensor max_pool1d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});
Tensor max_pool2d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});
Tensor max_pool3d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});
// Returns also its index in the input's plane, row-major, i64.
std::pair<Tensor, Tensor> max_pool1d_with_indices(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});
std::pair<Tensor, Tensor> max_pool3d_with_indices(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});

// Returns the mean of each window.
Tensor avg_pool1d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options = {});
Tensor avg_pool2d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options = {});
Tensor avg_pool3d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options = {});

// Sizes of outputs whose windows cover the input evenly: output o covers [floor(o in / out), ceil((o + 1) in / out)). Unset sizes
// stay the input's.
struct OutputSize : std::vector<std::optional<int64_t>> {
  OutputSize() = default;
  template <SizeNumber T>
  OutputSize(T all) : std::vector<std::optional<int64_t>>{int64_t(all)} {}  // the same along each dimension
  OutputSize(std::initializer_list<std::optional<int64_t>> each) : std::vector<std::optional<int64_t>>(each) {}
  template <std::input_iterator It>
  OutputSize(It first, It last) : std::vector<std::optional<int64_t>>(first, last) {}
};
Tensor adaptive_avg_pool1d(const Tensor& x, const OutputSize& output_size);
Tensor adaptive_avg_pool2d(const Tensor& x, const OutputSize& output_size);
Tensor adaptive_avg_pool3d(const Tensor& x, const OutputSize& output_size);
Tensor adaptive_max_pool1d(const Tensor& x, const OutputSize& output_size);
Tensor adaptive_max_pool2d(const Tensor& x, const OutputSize& output_size);
Tensor adaptive_max_pool3d(const Tensor& x, const OutputSize& output_size);
std::pair<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& x, const OutputSize& output_size);
std::pair<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, const OutputSize& output_size);
std::pair<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& x, const OutputSize& output_size);

// Returns (sum of x^norm_type over each window)^(1 / norm_type), with gradient 0 where the sum is 0; no padding. norm_type: not 0,
// else ValueError; infinity: the largest absolute value of each window, -infinity: the smallest.
Tensor lp_pool1d(const Tensor& x, double norm_type, const Dims& kernel_size, const Dims& stride = {}, bool ceil_mode = false);
Tensor lp_pool2d(const Tensor& x, double norm_type, const Dims& kernel_size, const Dims& stride = {}, bool ceil_mode = false);
Tensor lp_pool3d(const Tensor& x, double norm_type, const Dims& kernel_size, const Dims& stride = {}, bool ceil_mode = false);

struct MaxUnpoolOptions {
  Dims stride{};         // empty: the kernel size
  Dims padding{0};
  Dims output_size{};    // empty: (in - 1) stride - 2 padding + kernel
};
// Returns zeros, with x at the indices of a max_pool; if several go to one place, the last wins.
Tensor max_unpool1d(const Tensor& x, const Tensor& indices, const Dims& kernel_size, const MaxUnpoolOptions& options = {});
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, const Dims& kernel_size, const MaxUnpoolOptions& options = {});
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, const Dims& kernel_size, const MaxUnpoolOptions& options = {});

}  // namespace halfstep
