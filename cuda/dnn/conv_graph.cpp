// SPDX-License-Identifier: Apache-2.0
// Builds the library's graphs of convolutions. Needs no GPU: the test cudnn_plans passes exactly these graphs to the library.
#include <algorithm>
#include <limits>
#include <memory>

#include "cuda/dnn/conv.h"

namespace halfstep::cuda::dnn {

PlanKey ConvProblem::key() const {
  // Keys of other kinds of graphs begin with other letters than 'c'.
  PlanKey key{'c', int64_t(direction), int64_t(type), bias ? int64_t(*bias) : -1, relu, tensor_cores, alignment, int64_t(x.size())};
  for (const Numbers* n :
       {&x, &w, &y, &x_strides, &w_strides, &y_strides, &window.before, &window.after, &window.stride, &window.dilation})
    key.insert(key.end(), n->begin(), n->end());
  return key;
}

Numbers dense_strides(const Numbers& dims, bool channels_last) {
  const Strides s = strides_of(Shape(std::span(dims)), channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous);
  return {s.begin(), s.end()};
}

bool ConvProblem::prefers_tensor_cores() const {
  const bool half = type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
  constexpr int64_t kTileChannels = 8;  // the channels of a group must fill tiles of so many
  const int64_t groups = x[1] / w[1];
  return half && tensor_cores && w[1] % kTileChannels == 0 && y[1] / groups % kTileChannels == 0;
}

std::unique_ptr<OpGraph> conv_graph(const ConvProblem& p) {
  auto g = std::make_unique<OpGraph>(p.alignment);
  const GraphTensor x = g->tensor(p.x, p.x_strides, p.type), w = g->tensor(p.w, p.w_strides, p.type),
                    y = g->tensor(p.y, p.y_strides, p.type);
  if (!p.bias) {
    g->conv(p.direction, x, w, y, p.window);
    return g;
  }
  const GraphTensor& result = p.direction == Direction::data ? x : y;
  const GraphTensor raw = g->like(result);  // float32: the sum is rounded once, after the bias
  if (p.direction == Direction::data)
    g->conv(p.direction, raw, w, y, p.window);
  else
    g->conv(p.direction, x, w, raw, p.window);
  const int64_t channels = result.dims[1];
  Numbers dims(result.dims.size(), 1), strides(dims.size(), channels);
  dims[1] = channels;
  strides[1] = 1;
  const GraphTensor bias = g->tensor(dims, strides, *p.bias), sum = p.relu ? g->like(result) : result;
  g->pointwise_to(CUDNN_POINTWISE_ADD, raw, sum, {.b = &bias});
  if (p.relu) g->pointwise_to(CUDNN_POINTWISE_RELU_FWD, sum, result);
  return g;
}

// In one dimension: input i = 2 o + k - padding of output o and tap k is pixel r of block o + (k + shift) / 2 - before, where
// k + shift = 2 t + r, before = ceil(padding / 2) and shift = 2 before - padding. So t counts the taps of the weight's blocks.
std::optional<BlockForm> block_form(const Shape& x, const Shape& w, const Shape& y, const Window& window) {
  constexpr int64_t kTileChannels = 8;
  if (x.size() != 4 || window.dims != 2 || x[1] < 3 || x[1] > 4 || w[1] != x[1] || y[1] % kTileChannels != 0) return {};
  BlockForm form{.window = {.dims = 2}};
  for (int d = 0; d < 2; ++d) {
    const auto at = size_t(d);
    const int64_t size = w[d + 2], padding = window.padding[at], before = (padding + 1) / 2, last = y[d + 2] - 1;
    if (window.stride[at] != 2 || window.dilation[at] != 1 || size < 2) return {};
    form.shift[d] = int(2 * before - padding);
    form.weight[d] = (size - 1 + form.shift[d]) / 2 + 1;
    form.image[d] = std::min((x[d + 2] + 1) / 2, last + form.weight[d] - before);
    form.window.size[at] = form.weight[d];
    form.window.padding[at] = before;
    if (form.image[d] < 1) return {};
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto counts = [&](const Shape& s, const int64_t(&blocks)[2]) {
    return std::max(s[0] * s[2] * s[3], s[0] * blocks[0] * blocks[1] * 2) <= kMost;
  };
  if (!counts(x, form.image) || !counts(w, form.weight)) return {};
  return form;
}

}  // namespace halfstep::cuda::dnn
