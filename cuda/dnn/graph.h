// SPDX-License-Identifier: Apache-2.0
// What cuDNN is asked to compute: tensors, and operations on them. The library sees one graph as one piece of work, fused as far as
// one of its engines can.
#pragma once

#include <deque>
#include <optional>

#include "cuda/dnn/descriptor.h"

namespace halfstep::cuda::dnn {

// A tensor of a graph. Those in memory have the numbers (uid) 1, 2, 3... in the order in which they were made, without a gap.
struct Tensor {
  Numbers dims, strides;  // in elements; of any order
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t uid = 0;
  const Descriptor* descriptor = nullptr;
};

struct Operands {
  const Tensor *b = nullptr, *t = nullptr;  // the second operand, and the tensor that chooses between the two
  int64_t axis = -1;                        // of GEN_INDEX
};

// Which of a convolution's tensors is computed from the others: y = conv(x, w).
enum class Direction : uint8_t { forward, data, weight };

// How much of a product c [m, n] = a [m, k] b [k, n] holds data, as one int32 for each element of its first dimension; null: all.
struct Extents {
  const Tensor *m = nullptr, *n = nullptr, *k = nullptr;
};

struct ConvWindow {
  Numbers before, after, stride, dilation;  // of each spatial dimension; rows of padding before the first and after the last
};

// Products and pointwise operations compute in float32. ReLU keeps NaN.
class Graph {
 public:
  explicit Graph(int64_t alignment = 16) : alignment_(alignment) {}  // of every tensor in memory, in bytes
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // In the caller's memory.
  Tensor tensor(const Numbers& dims, const Numbers& strides, cudnnDataType_t type);
  // Between two operations; in no memory, unless the engine wants workspace for it.
  Tensor between(const Numbers& dims, const Numbers& strides, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Tensor like(const Tensor& t, cudnnDataType_t type = CUDNN_DATA_FLOAT) { return between(t.dims, t.strides, type); }
  // A number, read from the host when the graph is run: a constant of the graph.
  Tensor constant(size_t rank, float value);

  // One of x, w and y is written.
  void conv(Direction direction, const Tensor& x, const Tensor& w, const Tensor& y, const ConvWindow& window);
  void pointwise_to(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& y, Operands operands = {});
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, Operands operands = {}, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Tensor mul(const Tensor& a, const Tensor& b) { return pointwise(CUDNN_POINTWISE_MUL, a, {.b = &b}); }
  // c = a b, of the last two dimensions.
  void matmul_to(const Tensor& a, const Tensor& b, const Tensor& c, Extents extents = {});
  // Over the dimensions in which y has size 1.
  void reduce_to(cudnnReduceTensorOp_t mode, const Tensor& x, const Tensor& y);
  // The same elements by other dims and strides.
  void reshape(const Tensor& x, const Tensor& y);
  // 1 with probability p, else 0; seed and offset: int64 in memory.
  void bernoulli(const Tensor& seed, const Tensor& offset, double p, const Tensor& y);

  // The whole, finalised: no operation comes after the first call of this. `handle`: of the device; null: any device, which the
  // plan then names. Throws DeviceError where the library has no such graph.
  const Descriptor& operation_graph(cudnnHandle_t handle);

  // Tensors in memory but for constants, and the constants' values by their uid.
  const std::vector<int64_t>& uids() const { return uids_; }
  struct Constant {
    int64_t uid;
    float value;
  };
  const std::deque<Constant>& constants() const { return constants_; }

 private:
  Tensor make(const Numbers& dims, const Numbers& strides, cudnnDataType_t type, int64_t uid, bool is_virtual, bool by_value);
  Descriptor& keep(Descriptor d) { return kept_.emplace_back(std::move(d)); }
  Descriptor& operation(Type type) { return operations_.emplace_back(type); }

  int64_t alignment_, in_memory_ = 0, virtual_ = 1 << 20;
  std::vector<int64_t> uids_;
  std::deque<Constant> constants_;
  std::deque<Descriptor> kept_, operations_;
  std::optional<Descriptor> whole_;
};

}  // namespace halfstep::cuda::dnn
