// SPDX-License-Identifier: Apache-2.0
// Describes operations and tensors to cuDNN's backend API: each is a descriptor, whose attributes are set and then finalized.
#include "cuda/dnn/graph.h"

namespace halfstep::cuda::dnn {

GraphTensor OpGraph::make(const Numbers& dims, const Numbers& strides, cudnnDataType_t type, int64_t uid, bool is_virtual,
                          bool by_value) {
  Descriptor& d = keep(Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment_)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value)
      .finalize();
  return {dims, strides, type, uid, &d};
}

GraphTensor OpGraph::tensor(const Numbers& dims, const Numbers& strides, cudnnDataType_t type) {
  uids_.push_back(++in_memory_);
  return make(dims, strides, type, in_memory_, false, false);
}

GraphTensor OpGraph::between(const Numbers& dims, const Numbers& strides, cudnnDataType_t type) {
  return make(dims, strides, type, ++virtual_, true, false);
}

GraphTensor OpGraph::constant(size_t rank, float value) {
  constants_.push_back({++virtual_, value});
  const Numbers ones(rank, 1);
  return make(ones, ones, CUDNN_DATA_FLOAT, virtual_, false, true);
}

void OpGraph::conv(Direction direction, const GraphTensor& x, const GraphTensor& w, const GraphTensor& y,
                   const ConvWindow& window) {
  Descriptor& c = keep(Descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
  c.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t(window.stride.size()))
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, window.before)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, window.after)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, window.stride)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, window.dilation)
      .finalize();
  struct Row {
    Type operation;
    Attribute conv, x, w, y, alpha, beta;
  };
  static constexpr Row rows[3] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
  const Row& r = rows[int(direction)];
  operation(r.operation)
      .set(r.conv, c)
      .set(r.x, *x.descriptor)
      .set(r.w, *w.descriptor)
      .set(r.y, *y.descriptor)
      .set(r.alpha, 1.0f)
      .set(r.beta, 0.0f)
      .finalize();
}

void OpGraph::pointwise_to(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor& y, Operands operands) {
  Descriptor& p = keep(Descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
  p.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  // By default the library's ReLU turns NaN into 0, which would hide a failed step.
  if (mode == CUDNN_POINTWISE_RELU_FWD) p.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN);
  if (operands.axis >= 0) p.set(CUDNN_ATTR_POINTWISE_AXIS, operands.axis);
  p.finalize();
  Descriptor& o = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x.descriptor)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y.descriptor);
  if (operands.b) o.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *operands.b->descriptor);
  if (operands.t) o.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *operands.t->descriptor);
  o.finalize();
}

GraphTensor OpGraph::pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, Operands operands, cudnnDataType_t type) {
  const GraphTensor y = like(x, type);
  pointwise_to(mode, x, y, operands);
  return y;
}

void OpGraph::matmul_to(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c, Extents extents) {
  Descriptor& m = keep(Descriptor(CUDNN_BACKEND_MATMUL_DESCRIPTOR));
  m.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  Descriptor& o = operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, m)
      .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a.descriptor)
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b.descriptor)
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *c.descriptor);
  if (extents.m) o.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, *extents.m->descriptor);
  if (extents.n) o.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, *extents.n->descriptor);
  if (extents.k) o.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, *extents.k->descriptor);
  o.finalize();
}

void OpGraph::reduce_to(cudnnReduceTensorOp_t mode, const GraphTensor& x, const GraphTensor& y) {
  Descriptor& r = keep(Descriptor(CUDNN_BACKEND_REDUCTION_DESCRIPTOR));
  r.set(CUDNN_ATTR_REDUCTION_OPERATOR, mode).set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
  operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, r)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x.descriptor)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *y.descriptor)
      .finalize();
}

void OpGraph::reshape(const GraphTensor& x, const GraphTensor& y) {
  operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x.descriptor)
      .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *y.descriptor)
      .finalize();
}

void OpGraph::bernoulli(const GraphTensor& seed, const GraphTensor& offset, double p, const GraphTensor& y) {
  Descriptor& r = keep(Descriptor(CUDNN_BACKEND_RNG_DESCRIPTOR));
  r.set(CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_RNG_DISTRIBUTION_BERNOULLI).set(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, p).finalize();
  operation(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_RNG_DESC, r)
      .set(CUDNN_ATTR_OPERATION_RNG_SEED, *seed.descriptor)
      .set(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, *offset.descriptor)
      .set(CUDNN_ATTR_OPERATION_RNG_YDESC, *y.descriptor)
      .finalize();
}

const Descriptor& OpGraph::operation_graph(cudnnHandle_t handle) {
  if (operation_graph_) return *operation_graph_;
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const Descriptor& o : operations_) operations.push_back(o.raw());
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (handle) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  graph.set_descriptors(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations).finalize();
  return operation_graph_.emplace(std::move(graph));
}

}  // namespace halfstep::cuda::dnn
