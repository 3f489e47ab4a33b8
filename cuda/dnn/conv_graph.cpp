// SPDX-License-Identifier: Apache-2.0
// Builds the library's graphs of convolutions. Needs no GPU: the test cudnn_plans passes exactly these graphs to the library.
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

}  // namespace halfstep::cuda::dnn
