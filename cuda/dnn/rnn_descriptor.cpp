// SPDX-License-Identifier: Apache-2.0
#include "cuda/dnn/rnn_descriptor.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "framework/backend/workspace.h"
#include "framework/base/check.h"

namespace halfstep::cuda::dnn {
namespace {

cudnnDataType_t type_of(DType t) {
  return t == DType::f16 ? CUDNN_DATA_HALF : t == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

cudnnRNNMode_t mode_of(Cell cell) {
  switch (cell) {
    case Cell::lstm: return CUDNN_LSTM;
    case Cell::gru: return CUDNN_GRU;
    case Cell::rnn_tanh: return CUDNN_RNN_TANH;
    case Cell::rnn_relu: return CUDNN_RNN_RELU;
  }
  return CUDNN_RNN_TANH;
}

void describe_data(const RecurrentArgs& a, const RnnDataDescriptor& d, int64_t features) {
  using Layout = RecurrentArgs::Layout;
  const cudnnRNNDataLayout_t layout = a.layout == Layout::packed        ? CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED
                                      : a.layout == Layout::batch_first ? CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
                                                                        : CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  std::vector<int> lengths(size_t(a.batch), int(a.steps));
  if (a.layout == Layout::packed) lengths.assign(a.lengths.begin(), a.lengths.end());
  float padding = 0;  // 0 in every dtype
  check_cudnn(cudnn().cudnnSetRNNDataDescriptor(d.raw(), type_of(a.dtype), layout, int(a.steps), int(a.batch), int(features),
                                                lengths.data(), &padding),
              "cudnnSetRNNDataDescriptor");
}

void describe_state(const RecurrentArgs& a, const TensorDescriptor& d, int64_t columns) {
  const int dims[3] = {int(a.layers * a.directions), int(a.batch), int(columns)};
  const int strides[3] = {dims[1] * dims[2], dims[2], 1};
  check_cudnn(cudnn().cudnnSetTensorNdDescriptor(d.raw(), type_of(a.dtype), 3, dims, strides), "cudnnSetTensorNdDescriptor");
}

// Returns the number of elements of a tensor that the library has described.
int64_t elements_of(const TensorDescriptor& d) {
  constexpr int kMostDims = 8;  // the library's CUDNN_DIM_MAX
  cudnnDataType_t type;
  int rank = 0, dims[kMostDims], strides[kMostDims];
  check_cudnn(cudnn().cudnnGetTensorNdDescriptor(d.raw(), kMostDims, &type, &rank, dims, strides), "cudnnGetTensorNdDescriptor");
  return std::accumulate(dims, dims + std::min(rank, kMostDims), int64_t(1), std::multiplies<>());
}

}  // namespace

bool RnnProblem::is_for_the_library() const {
  const RecurrentArgs& a = args;
  if (a.dtype != DType::f32 && !is_half(a.dtype)) return false;
  if (a.steps < 1 || a.batch < 1 || a.features < 1 || a.units < 1 || a.width < 1) return false;
  if (a.projected && a.width >= a.units) return false;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t widest = std::max({a.features, a.units * gates_of(a.cell), a.directions * a.width});
  return a.steps <= kMost && a.batch <= kMost / widest && a.layers * a.directions <= kMost / (a.batch * widest);
}

PlanKey RnnProblem::network_key() const {
  const RecurrentArgs& a = args;
  return {int64_t(a.cell), int64_t(a.dtype), a.layers, a.directions, a.features, a.units, a.width, a.biased, a.projected, tf32};
}

PlanKey RnnProblem::key() const {
  PlanKey key = network_key();
  key.insert(key.end(), {int64_t(args.layout), args.steps, args.batch});
  key.insert(key.end(), args.lengths.begin(), args.lengths.end());
  return key;
}

RnnPlan::RnnPlan(const RnnProblem& problem, cudnnHandle_t handle) {
  const RecurrentArgs& a = problem.args;
  const Cudnn& dnn = cudnn();
  if (handle) check_cudnn(dnn.cudnnSetDropoutDescriptor(dropout_.raw(), handle, 0, nullptr, 0, 0), "cudnnSetDropoutDescriptor");
  const cudnnMathType_t math = is_half(a.dtype) ? CUDNN_TENSOR_OP_MATH : problem.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
  const bool packed = a.layout == RecurrentArgs::Layout::packed;
  check_cudnn(dnn.cudnnSetRNNDescriptor_v8(
                  rnn.raw(), CUDNN_RNN_ALGO_STANDARD, mode_of(a.cell), a.biased ? CUDNN_RNN_DOUBLE_BIAS : CUDNN_RNN_NO_BIAS,
                  a.directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, type_of(a.dtype),
                  CUDNN_DATA_FLOAT, math, int32_t(a.features), int32_t(a.units), int32_t(a.width), int32_t(a.layers),
                  dropout_.raw(), packed ? CUDNN_RNN_PADDED_IO_DISABLED : CUDNN_RNN_PADDED_IO_ENABLED),
              "cudnnSetRNNDescriptor_v8");
  describe_data(a, x, a.features);
  describe_data(a, y, a.directions * a.width);
  describe_state(a, h, a.width);
  describe_state(a, c, a.units);
}

WeightLayout weight_layout(const RnnProblem& problem, const RnnPlan& plan, cudnnHandle_t handle) {
  const RecurrentArgs& a = problem.args;
  const int64_t size = int64_t(size_of(a.dtype)), gates = gates_of(a.cell);
  size_t bytes = 0;
  check_cudnn(cudnn().cudnnGetRNNWeightSpaceSize(handle, plan.rnn.raw(), &bytes), "cudnnGetRNNWeightSpaceSize");
  const Workspace space(Device::cuda, bytes);  // only addresses are used
  char* const base = space.data();
  const TensorDescriptor matrix, bias;
  const auto decline = [](const char* what) { fail<DeviceError>("cudnn", "its layout of parameters is not ours: ", what); };

  struct LayerOffsets {
    int64_t matrix, bias;
  };
  // Finds one linear layer, which reads `columns`.
  const auto find_layer = [&](int64_t part, int64_t id, int64_t rows, int64_t columns, bool biased) {
    void *m = nullptr, *b = nullptr;
    check_cudnn(cudnn().cudnnGetRNNWeightParams(handle, plan.rnn.raw(), int32_t(part), bytes, base, int32_t(id), matrix.raw(), &m,
                                                bias.raw(), &b),
                "cudnnGetRNNWeightParams");
    const auto offset = [&](void* address, int64_t elements) {
      const int64_t at = static_cast<char*>(address) - base;
      if (at < 0 || at % size != 0 || at + elements * size > int64_t(bytes)) decline("a parameter lies outside of it");
      return at / size;
    };
    if (!m || elements_of(matrix) != rows * columns) decline("a matrix has another size");
    if (biased && (!b || elements_of(bias) != rows)) decline("a bias has another size");
    return LayerOffsets{offset(m, rows * columns), biased ? offset(b, rows) : 0};
  };

  WeightLayout out{int64_t(bytes) / size, {}};
  for (int64_t part = 0; part < a.layers * a.directions; ++part) {
    const int64_t features = part < a.directions ? a.features : a.directions * a.width;
    LayerOffsets sides[2];
    for (int64_t side = 0; side < 2; ++side) {  // for inputs and for states
      const int64_t columns = side == 0 ? features : a.width;
      for (int64_t gate = 0; gate < gates; ++gate) {
        const LayerOffsets at = find_layer(part, side * gates + gate, a.units, columns, a.biased);
        if (gate == 0) sides[side] = at;
        if (at.matrix != sides[side].matrix + gate * a.units * columns ||
            (a.biased && at.bias != sides[side].bias + gate * a.units))
          decline("the gates are not one after another");
      }
    }
    for (const LayerOffsets& p : sides) out.offsets.push_back(p.matrix);
    for (const LayerOffsets& p : sides)
      if (a.biased) out.offsets.push_back(p.bias);
    if (a.projected) out.offsets.push_back(find_layer(part, 2 * gates, a.width, a.units, false).matrix);
  }
  return out;
}

}  // namespace halfstep::cuda::dnn
