// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN (the contracts are those of framework/backend/kernels.def). convolve() returns false and does nothing if
// the library is missing or declines: float64, integers, tensors whose address is not a multiple of their element size, and work
// without an engine.
#pragma once

#include <functional>

#include "cuda/dnn/cache.h"
#include "cuda/dnn/graph.h"
#include "cuda/kernels/kernels.h"
#include "framework/backend/unfold_conv.h"

namespace halfstep::cuda::dnn {

// A convolution in the library's form: [N, C, spatial...] with two spatial dimensions or more.
struct ConvProblem {
  Direction direction = Direction::forward;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;  // dtype of x, w and y
  Numbers x, w, y, x_strides, w_strides, y_strides;
  ConvWindow window;
  std::optional<cudnnDataType_t> bias{};  // added to the result's channels; forward and data
  bool relu = false;                      // after the bias; forward
  bool tensor_cores = true;
  int64_t alignment = 16;  // of the least aligned tensor, in bytes, at most 16

  PlanKey key() const;
  // Returns whether to prefer engines with tensor cores. For 16-bit data the library's first proposal is sometimes an engine
  // without them, which also transposes channels_last tensors in its workspace: cuDNN 9.19 does so for the 1 x 1 convolutions with
  // stride 2 of ResNet-18. Not for depthwise convolutions and channels that do not fit their tiles, for which other engines may be
  // faster.
  bool prefers_tensor_cores() const;
};
// Builds the graph. Its tensors in memory, in this order: x, w, y and, if there is one, bias.
std::unique_ptr<OpGraph> conv_graph(const ConvProblem& problem);

// Returns the strides of a dense [N, C, spatial...], with channels innermost (channels_last) or the last dimension innermost.
Numbers dense_strides(const Numbers& dims, bool channels_last);

// A convolution of stride 2 on 3 or 4 channels as one of stride 1 on blocks of 2 x 2 pixels (space-to-depth), whose channels are
// those of their pixels and zeros, 16 in all. The blocks of the image begin with its first pixel, those of the weight up to one row
// and column before it.
struct BlockForm {
  static constexpr int64_t kChannels = 16;
  int64_t image[2], weight[2];  // rows and columns of blocks; the image's last, if no window reaches them, are left out
  int shift[2];                 // rows and columns of zeros before the weight
  Window window;                // of the convolution on blocks
};
// Returns this form for x [N, C, H, W], w [O, C, size...] and y; nothing for other strides, numbers of channels, and dilation.
std::optional<BlockForm> block_form(const Shape& x, const Shape& w, const Shape& y, const Window& window);

// x, w and y of y = conv(x, w), all in one format; `direction` names the result. `bias`: of the result's channels, or empty.
struct ConvCall {
  Direction direction;
  TensorView x, w, y, bias;
  Window window;
  bool relu = false;  // forward: y = relu(conv(x, w) + bias)
};
// Convolves. unfold: the same work without the library, which tuning measures. Tensors of 2^31 elements and more, which the
// library's engines would count in 32 bits, are divided by samples; gradients of a weight are then added in float32.
bool convolve(const Queue& q, const ConvKernels& kernels, const ConvCall& call, const std::function<void()>& unfold);
// Sets the number of multiplications from which 16-bit images of 3 channels in channels_last are given to the library with 4, or in
// the form of blocks. The default is 2^28, below which the copies take longer than they save.
void set_least_widened_convolution(double multiplications);
// Sets the number of elements up to which a tensor is given to the library. The default is 2^31 - 1.
void set_largest_convolution(int64_t elements);

}  // namespace halfstep::cuda::dnn
