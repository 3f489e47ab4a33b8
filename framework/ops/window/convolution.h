// SPDX-License-Identifier: Apache-2.0
// Convolutions, their transposes, and windows as columns. Names, defaults and errors' conditions are PyTorch's.
//
//   y = conv2d(x, weight, bias, {.stride = {2}, .padding = "same"});
#pragma once

#include <initializer_list>
#include <string>

#include "framework/tensor/tensor.h"

namespace halfstep {

class LaidWeights;

// Zeros around the input: sizes (one for all dimensions, or one each), "same" (the output is as large as the input; stride 1 only;
// an odd total pads one more behind) or "valid" (none).
struct ConvPadding {
  ConvPadding(int64_t all) : sizes{all} {}
  ConvPadding(int all) : sizes{all} {}
  ConvPadding(std::initializer_list<int64_t> each) : sizes(each) {}
  ConvPadding(const Dims& each) : sizes(each) {}
  ConvPadding(std::string rule) : name(std::move(rule)) {}
  ConvPadding(const char* rule) : name(rule) {}

  Dims sizes{0};
  std::string name;  // empty: the sizes count
};

// Lists have one entry for all spatial dimensions, or one each.
struct ConvOptions {
  Dims stride{1};
  ConvPadding padding = 0;
  Dims dilation{1};
  int64_t groups = 1;
  LaidWeights* laid = nullptr;  // the layer's cache of laid-out weights for InferenceMode (laid_weights.h), or null
};
struct ConvTransposeOptions {
  Dims stride{1};
  Dims padding{0};
  Dims output_padding{0};  // less than stride or dilation
  int64_t groups = 1;
  Dims dilation{1};
};

// Return y[o, p] = bias[o] + sum over c, k of weight[o, c, k] x[c, p stride - padding + k dilation]. x: [N, C, in...] or [C,
// in...], weight: [O, C / groups, kernel...], bias: [O] or undefined -> [N, O, out...] or [O, out...]. relu: applies ReLU in the
// same pass. (autocast: low)
//   out = floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = Tensor(), const ConvOptions& options = {},
              bool relu = false);
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = Tensor(), const ConvOptions& options = {},
              bool relu = false);
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = Tensor(), const ConvOptions& options = {},
              bool relu = false);
// Compute the gradient of a convolution's input, plus a bias. x: [N, C, in...] or [C, in...], weight: [C, O / groups, kernel...],
// bias: [O] or undefined -> [N, O, out...] or [O, out...]. (autocast: low)
//   out = (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = Tensor(),
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = Tensor(),
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = Tensor(),
                        const ConvTransposeOptions& options = {});
// Returns the gradient of a convolution's weight: x [N, C, in...] and grad [N, O, out...] -> [O, C / groups, kernel...].
Tensor conv_backward_weight(const Tensor& x, const Tensor& grad, const Dims& kernel_size, const ConvOptions& options = {});
// Convolves with time first: x [T, N, C], weight [K, C, O], bias [O] -> [T + 2 pad - K + 1, N, O]. (low)
Tensor conv_tbc(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t pad = 0);

struct WindowOptions {
  Dims dilation{1}, padding{0}, stride{1};
};
// Copies windows to columns. x: [N, C, H, W] or [C, H, W] -> [N, C kh kw, L] or [C kh kw, L]: the elements of a window at each of
// its L positions.
Tensor unfold(const Tensor& x, const Dims& kernel_size, const WindowOptions& options = {});
// Adds columns back, the transpose of unfold: x [N, C kh kw, L] or [C kh kw, L] -> [N, C, H, W] or [C, H, W]; sums elements shared
// by windows.
Tensor fold(const Tensor& x, const Dims& output_size, const Dims& kernel_size, const WindowOptions& options = {});

}  // namespace halfstep
