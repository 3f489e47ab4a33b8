// SPDX-License-Identifier: Apache-2.0
// The C functions of cuDNN's recurrent networks, and the descriptors of tensors and of dropout that they use.
#include "tests/emulators/fake_cudnn/rnn.h"

#include <algorithm>
#include <numeric>

#include "tests/emulators/source/hooks.h"

namespace emu::dnn {

Registry<TensorDescriptor> tensors("tensor descriptor");
Registry<DropoutDescriptor> dropouts("dropout descriptor");
Registry<RnnDescriptor> networks("RNN descriptor");
Registry<RnnData> data("RNN data descriptor");

namespace {

void set_tensor(cudnnTensorDescriptor_t handle, cudnnDataType_t type, const Dims& dims, const Dims& strides) {
  for (int64_t d : dims) {
    if (d < 1) misuse(CUDNN_STATUS_BAD_PARAM, "a tensor descriptor of %s", text_of(dims).c_str());
  }
  size_of(type);
  tensors.at(handle) = {type, dims, strides};
}

void set_dropout(cudnnDropoutDescriptor_t handle, cudnnHandle_t library, float p, void* states, size_t bytes) {
  handle_of(library);
  if (!(p >= 0 && p < 1)) misuse(CUDNN_STATUS_BAD_PARAM, "dropout of %g", double(p));
  if (p > 0 && (!states || bytes < kDropoutBytes))
    misuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "states of %zu bytes for dropout", bytes);
  dropouts.at(handle) = {p, static_cast<char*>(states), true};
}

void set_network(RnnDescriptor& to, cudnnRNNAlgo_t algo, cudnnRNNInputMode_t input_mode, cudnnDataType_t math,
                 const RnnDescriptor& d) {
  if (d.input < 1 || d.hidden < 1 || d.projected < 1 || d.layers < 1)
    misuse(CUDNN_STATUS_BAD_PARAM, "sizes and layers are at least 1");
  if (setting("HALFSTEP_FAKE_DNN_REFUSE") & kRnn) refuse(CUDNN_STATUS_NOT_SUPPORTED, "as HALFSTEP_FAKE_DNN_REFUSE says");
  if (d.projected > d.hidden || (d.has_projection() && (d.mode != CUDNN_LSTM || algo != CUDNN_RNN_ALGO_STANDARD)))
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "a projection to %ld of %ld", long(d.projected), long(d.hidden));
  if (algo == CUDNN_RNN_ALGO_PERSIST_DYNAMIC || input_mode != CUDNN_LINEAR_INPUT)
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "this algorithm or input mode");
  const bool wide = d.type == CUDNN_DATA_DOUBLE;
  if (d.type != CUDNN_DATA_FLOAT && d.type != CUDNN_DATA_HALF && d.type != CUDNN_DATA_BFLOAT16 && !wide)
    refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "a network of type %d", int(d.type));
  if (wide != (math == CUDNN_DATA_DOUBLE) || (math == CUDNN_DATA_HALF && d.type != CUDNN_DATA_HALF) ||
      (math != CUDNN_DATA_FLOAT && math != CUDNN_DATA_HALF && !wide))
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "a network of type %d computed in type %d", int(d.type), int(math));
  to = d;
}

}  // namespace

int64_t RnnData::elements() const {
  const bool packed = layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED;
  return vector * (packed ? std::accumulate(lengths.begin(), lengths.end(), int64_t(0)) : steps * batch);
}
int64_t RnnData::at(int64_t step, int64_t sequence) const {
  if (layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED) return (step * batch + sequence) * vector;
  if (layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED) return (sequence * steps + step) * vector;
  int64_t before = sequence;
  for (int length : lengths) before += std::min(int64_t(length), step);
  return before * vector;
}

}  // namespace emu::dnn

using namespace emu;
using namespace emu::dnn;

extern "C" {

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* t) {
  return guarded("cudnnCreateTensorDescriptor", [&] { tensors.create(t); });
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t) {
  return guarded("cudnnDestroyTensorDescriptor", [&] { tensors.destroy(t); });
}
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t t, cudnnDataType_t type, int rank, const int dims[],
                                         const int strides[]) {
  return guarded("cudnnSetTensorNdDescriptor", [&] {
    if (rank < 3 || rank > CUDNN_DIM_MAX) misuse(CUDNN_STATUS_BAD_PARAM, "a tensor descriptor of rank %d", rank);
    set_tensor(t, type, Dims(dims, dims + rank), Dims(strides, strides + rank));
  });
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format, cudnnDataType_t type, int n, int c,
                                         int h, int w) {
  return guarded("cudnnSetTensor4dDescriptor", [&] {
    if (format != CUDNN_TENSOR_NCHW) refuse(CUDNN_STATUS_NOT_SUPPORTED, "a tensor descriptor of format %d", int(format));
    set_tensor(t, type, {n, c, h, w}, row_major({n, c, h, w}));
  });
}
cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t t, int requested, cudnnDataType_t* type, int* rank,
                                         int dims[], int strides[]) {
  return guarded("cudnnGetTensorNdDescriptor", [&] {
    const TensorDescriptor& d = tensors.at(t);
    *type = d.type;
    *rank = int(d.dims.size());
    for (size_t i = 0; i < std::min(size_t(requested), d.dims.size()); ++i) {
      dims[i] = int(d.dims[i]);
      if (strides) strides[i] = int(d.strides[i]);
    }
  });
}

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t* d) {
  return guarded("cudnnCreateDropoutDescriptor", [&] { dropouts.create(d); });
}
cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t d) {
  return guarded("cudnnDestroyDropoutDescriptor", [&] { dropouts.destroy(d); });
}
cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t* bytes) {
  return guarded("cudnnDropoutGetStatesSize", [&] {
    handle_of(handle);
    *bytes = kDropoutBytes;
  });
}
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t d, cudnnHandle_t handle, float p, void* states, size_t bytes,
                                        unsigned long long seed) {
  return guarded("cudnnSetDropoutDescriptor", [&] {
    set_dropout(d, handle, p, states, bytes);
    if (!states) return;
    const auto work = [states, seed] {
      check_device_memory("cuDNN: the states of dropout", states, kDropoutBytes);
      const OpenDeviceMemory open;
      const DropoutStates first{kDropoutMagic, seed, 0};
      std::memcpy(states, &first, sizeof first);
    };
    submit(handle_of(handle).stream, {.work = work, .what = "cudnn dropout"});
  });
}
cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t d, cudnnHandle_t handle, float p, void* states, size_t bytes,
                                            unsigned long long) {
  return guarded("cudnnRestoreDropoutDescriptor", [&] { set_dropout(d, handle, p, states, bytes); });
}

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* d) {
  return guarded("cudnnCreateRNNDescriptor", [&] { networks.create(d); });
}
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t d) {
  return guarded("cudnnDestroyRNNDescriptor", [&] { networks.destroy(d); });
}
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algo, cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t direction, cudnnRNNInputMode_t input_mode, cudnnDataType_t type,
                                       cudnnDataType_t math, cudnnMathType_t products, int32_t input, int32_t hidden,
                                       int32_t projected, int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t flags) {
  return guarded("cudnnSetRNNDescriptor_v8", [&] {
    RnnDescriptor d{true,
                    mode,
                    bias,
                    type,
                    input,
                    hidden,
                    projected,
                    layers,
                    direction == CUDNN_BIDIRECTIONAL ? 2 : 1,
                    (flags & CUDNN_RNN_PADDED_IO_ENABLED) != 0,
                    {},
                    type == CUDNN_DATA_FLOAT && products != CUDNN_FMA_MATH && options().capability >= 80};
    if (dropout) d.dropout = dropouts.at(dropout);
    if (layers == 1) d.dropout = {};
    set_network(networks.at(rnn), algo, input_mode, math, d);
  });
}
cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* d) {
  return guarded("cudnnCreateRNNDataDescriptor", [&] { data.create(d); });
}
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t d) {
  return guarded("cudnnDestroyRNNDataDescriptor", [&] { data.destroy(d); });
}
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t to, cudnnDataType_t type, cudnnRNNDataLayout_t layout, int steps,
                                        int batch, int vector, const int lengths[], void* fill) {
  return guarded("cudnnSetRNNDataDescriptor", [&] {
    if (steps < 1 || batch < 1 || vector < 1) misuse(CUDNN_STATUS_BAD_PARAM, "steps, batch and vector are at least 1");
    RnnData d{true, type, layout, steps, batch, vector, std::vector<int>(lengths, lengths + batch), fill != nullptr, 0};
    const bool packed = layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED;
    for (int length : d.lengths) {
      if (length < (packed ? 1 : 0) || length > steps)
        misuse(CUDNN_STATUS_BAD_PARAM, "a sequence of %d of %d steps", length, steps);
    }
    if (packed && (!std::is_sorted(d.lengths.rbegin(), d.lengths.rend()) || d.lengths[0] != steps))
      misuse(CUDNN_STATUS_BAD_PARAM, "packed sequences come in order of length, the first of all steps");
    if (fill) d.fill = load(type, fill, 0);
    data.at(to) = std::move(d);
  });
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                                        cudnnRNNDataDescriptor_t x, size_t* work_bytes, size_t* reserve_bytes) {
  return guarded("cudnnGetRNNTempSpaceSizes", [&] {
    handle_of(handle);
    RnnCall call;
    call.d = networks.set_at(rnn);
    call.x = data.set_at(x);
    if (work_bytes) *work_bytes = call.workspace_bytes();
    if (reserve_bytes) *reserve_bytes = mode == CUDNN_FWD_MODE_TRAINING ? call.reserve_bytes() : 0;
  });
}
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t* bytes) {
  return guarded("cudnnGetRNNWeightSpaceSize", [&] {
    handle_of(handle);
    const RnnDescriptor& d = networks.set_at(rnn);
    *bytes = size_t(WeightLayout(d).elements * size_of(d.type));
  });
}
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t pseudo, size_t bytes,
                                      const void* weights, int32_t linear, cudnnTensorDescriptor_t m, void** m_at,
                                      cudnnTensorDescriptor_t b, void** b_at) {
  return guarded("cudnnGetRNNWeightParams", [&] {
    handle_of(handle);
    const RnnDescriptor& d = networks.set_at(rnn);
    const WeightLayout layout(d);
    if (bytes < size_t(layout.elements * size_of(d.type)))
      misuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "a weight space of %zu bytes", bytes);
    if (pseudo < 0 || pseudo >= d.pseudo_layers() || linear < 0 || linear > 2 * d.gates() ||
        (linear == 2 * d.gates() && d.mode != CUDNN_LSTM))
      misuse(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "no matrix %d of pseudo layer %d", linear, pseudo);
    const auto give = [&](const Piece& piece, cudnnTensorDescriptor_t t, void** at) {
      if (at) *at = piece.rows ? static_cast<char*>(const_cast<void*>(weights)) + piece.offset * size_of(d.type) : nullptr;
      if (t && piece.rows) set_tensor(t, d.type, {1, piece.rows, piece.columns}, row_major({1, piece.rows, piece.columns}));
    };
    give(layout.matrices[size_t(pseudo)][size_t(linear)], m, m_at);
    give(layout.biases[size_t(pseudo)][size_t(linear)], b, b_at);
  });
}

}  // extern "C"
