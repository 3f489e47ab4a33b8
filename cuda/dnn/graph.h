// SPDX-License-Identifier: Apache-2.0
// A graph for cuDNN: tensors, and operations on them. The library treats one graph as one piece of work, fused as far as one of
// its engines can.
#pragma once

#include <deque>
#include <optional>

#include "cuda/dnn/descriptor.h"

namespace halfstep::cuda::dnn {

// A tensor of a graph. Those in memory have the numbers (uid) 1, 2, 3... in the order of creation, without a gap.
struct GraphTensor {
  Numbers dims, strides;  // in elements; in any order
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t uid = 0;
  const Descriptor* descriptor = nullptr;
};

struct Operands {
  const GraphTensor *b = nullptr, *t = nullptr;  // second operand, and the tensor that selects between the two
  int64_t axis = -1;                             // for GEN_INDEX
};

// The tensor of a convolution y = conv(x, w) that is computed from the others.
enum class Direction : uint8_t { forward, data, weight };

// How much of a product c [m, n] = a [m, k] b [k, n] holds data: one int32 per element of its first dimension; null: all.
struct Extents {
  const GraphTensor *m = nullptr, *n = nullptr, *k = nullptr;
};

struct ConvWindow {
  Numbers before, after, stride, dilation;  // for each spatial dimension; padding before the first row and after the last
};

// A graph under construction. Products and pointwise operations compute in float32. ReLU keeps NaN.
class OpGraph {
 public:
  explicit OpGraph(int64_t alignment = 16) : alignment_(alignment) {}  // bytes: alignment of every tensor in memory
  OpGraph(const OpGraph&) = delete;
  OpGraph& operator=(const OpGraph&) = delete;

  // Adds a tensor in the caller's memory.
  GraphTensor tensor(const Numbers& dims, const Numbers& strides, cudnnDataType_t type);
  // Adds a tensor between two operations; it has no memory, unless the engine needs workspace for it.
  GraphTensor between(const Numbers& dims, const Numbers& strides, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  GraphTensor like(const GraphTensor& t, cudnnDataType_t type = CUDNN_DATA_FLOAT) { return between(t.dims, t.strides, type); }
  // Adds a number that is read from the host when the graph runs: a constant of the graph.
  GraphTensor constant(size_t rank, float value);

  // Adds a convolution, which writes one of x, w and y.
  void conv(Direction direction, const GraphTensor& x, const GraphTensor& w, const GraphTensor& y, const ConvWindow& window);
  // Adds y = mode(x, operands) for each element; a tensor of size 1 in a dimension is repeated along it.
  void pointwise_to(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor& y, Operands operands = {});
  // Adds such an operation with a new tensor, like x, as its result.
  GraphTensor pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, Operands operands = {},
                        cudnnDataType_t type = CUDNN_DATA_FLOAT);
  GraphTensor mul(const GraphTensor& a, const GraphTensor& b) { return pointwise(CUDNN_POINTWISE_MUL, a, {.b = &b}); }
  // Adds c = a b over the last two dimensions.
  void matmul_to(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c, Extents extents = {});
  // Adds a reduction over the dimensions in which y has size 1.
  void reduce_to(cudnnReduceTensorOp_t mode, const GraphTensor& x, const GraphTensor& y);
  // Adds another view of the same elements.
  void reshape(const GraphTensor& x, const GraphTensor& y);
  // Adds random numbers y: 1 with probability p, else 0. seed and offset: int64 in memory.
  void bernoulli(const GraphTensor& seed, const GraphTensor& offset, double p, const GraphTensor& y);

  // Finalises the graph; no operation may follow the first call. `handle`: the device's; null: any device, which the plan then
  // names. Throws DeviceError if the library does not support the graph.
  const Descriptor& operation_graph(cudnnHandle_t handle);

  // Return the uids of tensors in memory except constants, and the constants' values by uid.
  const std::vector<int64_t>& uids() const { return uids_; }
  struct Constant {
    int64_t uid;
    float value;
  };
  const std::deque<Constant>& constants() const { return constants_; }

 private:
  GraphTensor make(const Numbers& dims, const Numbers& strides, cudnnDataType_t type, int64_t uid, bool is_virtual, bool by_value);
  Descriptor& keep(Descriptor d) { return kept_.emplace_back(std::move(d)); }
  Descriptor& operation(Type type) { return operations_.emplace_back(type); }

  int64_t alignment_;
  int64_t in_memory_ = 0, virtual_ = 1 << 20;  // last uids of tensors in the caller's memory, and of others
  std::vector<int64_t> uids_;
  std::deque<Constant> constants_;
  std::deque<Descriptor> kept_, operations_;
  std::optional<Descriptor> operation_graph_;
};

}  // namespace halfstep::cuda::dnn
