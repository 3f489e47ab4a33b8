// SPDX-License-Identifier: Apache-2.0
// A recurrent network of cuDNN's API with its memory, for tests that call the fake library.
#pragma once

#include <string>

#include "tests/emulators/fake_cudnn/cudnn_builder.h"

namespace halfstep::testing {

struct RnnCase {
  const char* name;
  cudnnRNNMode_t mode;
  cudnnRNNBiasMode_t bias = CUDNN_RNN_DOUBLE_BIAS;
  int64_t projected = 0;  // 0: no projection
  int64_t layers = 1, directions = 1;
  cudnnRNNDataLayout_t layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  std::vector<int> lengths = {5, 5, 5};
  float dropout = 0;
  bool fills = true;
  int64_t steps = 5, batch = 3, input = 4, hidden = 3;

  int64_t gates() const { return mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1; }
  int64_t state() const { return projected ? projected : hidden; }
  int64_t outputs() const { return directions * state(); }
  int64_t length(int64_t sequence) const { return lengths[size_t(sequence)]; }
  bool is_packed() const { return layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED; }
  int64_t vectors() const {
    int64_t sum = 0;
    for (int n : lengths) sum += n;
    return is_packed() ? sum : steps * batch;
  }
  int64_t at(int64_t step, int64_t sequence, int64_t size) const {
    if (layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED) return (step * batch + sequence) * size;
    if (layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED) return (sequence * steps + step) * size;
    int64_t before = sequence;
    for (int n : lengths) before += std::min<int64_t>(n, step);
    return before * size;
  }
};

struct RnnParameter {
  std::string name;
  Buffer value;  // f32
};

class RnnMemory {
 public:
  RnnMemory(const RnnCase& network, DType type)
      : c(network),
        t(type),
        x(data(c.input, 1)),
        dy(data(c.outputs(), 2)),
        y(poisoned(t, {c.vectors(), c.outputs()})),
        dx(poisoned(t, {c.vectors(), c.input})),
        hx(states(c.state(), 3)),
        dhy(states(c.state(), 4)),
        cx(states(c.hidden, 5)),
        dcy(states(c.hidden, 6)),
        hy(states(c.state(), 7)),
        dhx(states(c.state(), 7)),
        cy(states(c.hidden, 7)),
        dcx(states(c.hidden, 7)) {
    ok(cudnnCreateDropoutDescriptor(&dropout));
    size_t bytes = 0;
    ok(cudnnDropoutGetStatesSize(dnn_handle(), &bytes));
    drop_states = make(DType::u8, {int64_t(bytes)});
    drop_memory = std::make_unique<OnDevice>(drop_states);
    ok(cudnnSetDropoutDescriptor(dropout, dnn_handle(), c.dropout, drop_memory->view.data, bytes, 11));
    ok(cudnnCreateRNNDescriptor(&rnn));
    const cudnnDataType_t type_of = dnn_type(t);
    ok(cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_STANDARD, c.mode, c.bias,
                                c.directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, type_of,
                                CUDNN_DATA_FLOAT, t == DType::f32 ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH, int(c.input),
                                int(c.hidden), int(c.state()), int(c.layers), dropout,
                                c.is_packed() ? CUDNN_RNN_PADDED_IO_DISABLED : CUDNN_RNN_PADDED_IO_ENABLED));
    float zero = 0;  // of any floating type
    for (auto& [descriptor, size] : {std::pair<cudnnRNNDataDescriptor_t&, int64_t>{x_desc, c.input}, {y_desc, c.outputs()}}) {
      ok(cudnnCreateRNNDataDescriptor(&descriptor));
      ok(cudnnSetRNNDataDescriptor(descriptor, type_of, c.layout, int(c.steps), int(c.batch), int(size), c.lengths.data(),
                                   c.fills ? &zero : nullptr));
    }
    for (auto& [descriptor, size] : {std::pair<cudnnTensorDescriptor_t&, int64_t>{h_desc, c.state()}, {c_desc, c.hidden}}) {
      const int dims[] = {int(c.layers * c.directions), int(c.batch), int(size)}, strides[] = {int(c.batch * size), int(size), 1};
      ok(cudnnCreateTensorDescriptor(&descriptor));
      ok(cudnnSetTensorNdDescriptor(descriptor, type_of, 3, dims, strides));
    }
    ok(cudnnCreateTensorDescriptor(&m_desc));
    ok(cudnnCreateTensorDescriptor(&b_desc));
    ok(cudnnGetRNNWeightSpaceSize(dnn_handle(), rnn, &weight_bytes));
    const int64_t elements = int64_t(weight_bytes / size_of(t));
    weights = uniform(t, {elements}, 8, -0.8, 0.8);
    dweights = make(t, {elements});
    for (int64_t i = 0; i < elements; ++i) set(dweights.view, i, 0);
    dweight_memory = std::make_unique<OnDevice>(dweights);
    size_t work_bytes = 0, kept_bytes = 0;
    ok(cudnnGetRNNTempSpaceSizes(dnn_handle(), rnn, CUDNN_FWD_MODE_TRAINING, x_desc, &work_bytes, &kept_bytes));
    work = std::make_unique<OnDevice>(make(DType::u8, {int64_t(work_bytes)}));
    reserve = std::make_unique<OnDevice>(make(DType::u8, {int64_t(kept_bytes)}));
  }
  ~RnnMemory() {
    cudnnDestroyRNNDescriptor(rnn);
    cudnnDestroyDropoutDescriptor(dropout);
    for (auto d : {x_desc, y_desc}) cudnnDestroyRNNDataDescriptor(d);
    for (auto d : {h_desc, c_desc, m_desc, b_desc}) cudnnDestroyTensorDescriptor(d);
  }
  RnnMemory(const RnnMemory&) = delete;

  // Runs forward in a captured stream: launched when everything is set, twice if both results are wanted.
  void forward(bool training, std::vector<std::string>* captured = nullptr) {
    const OnDevice on_x(x), on_y(y), on_hx(hx), on_hy(hy), on_cx(cx), on_cy(cy), on_weights(weights);
    cudaStream_t stream = nullptr;
    if (captured) {
      REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
      REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    }
    const bool cells = c.mode == CUDNN_LSTM;
    ok(cudnnRNNForward(dnn_handle(stream), rnn, training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, nullptr, x_desc,
                       on_x.view.data, y_desc, on_y.view.data, h_desc, on_hx.view.data, on_hy.view.data, c_desc,
                       cells ? on_cx.view.data : nullptr, cells ? on_cy.view.data : nullptr, weight_bytes, on_weights.view.data,
                       bytes(*work), work->view.data, training ? bytes(*reserve) : 0, training ? reserve->view.data : nullptr));
    if (captured) {
      cudaGraph_t graph;
      cudaGraphExec_t executable;
      REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
      REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
      for (int i = 0; i < 2; ++i) {
        REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
        REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
        on_y.fetch();
        captured->push_back(y.raw());
      }
      cudaGraphExecDestroy(executable);
      cudaGraphDestroy(graph);
      cudaStreamDestroy(stream);
    }
    for (const OnDevice* d : {&on_y, &on_hy, &on_cy}) d->fetch();
  }
  void backward() {
    const OnDevice on_x(x), on_y(y), on_dy(dy), on_dx(dx), on_hx(hx), on_dhy(dhy), on_dhx(dhx), on_cx(cx), on_dcy(dcy), on_dcx(dcx),
        on_weights(weights);
    const bool cells = c.mode == CUDNN_LSTM;
    if (!keep_gradients) REQUIRE(cudaMemset(dweight_memory->view.data, 0, weight_bytes) == cudaSuccess);
    ok(cudnnRNNBackwardData_v8(dnn_handle(), rnn, nullptr, y_desc, on_y.view.data, on_dy.view.data, x_desc, on_dx.view.data, h_desc,
                               on_hx.view.data, on_dhy.view.data, on_dhx.view.data, c_desc, cells ? on_cx.view.data : nullptr,
                               cells ? on_dcy.view.data : nullptr, cells ? on_dcx.view.data : nullptr, weight_bytes,
                               on_weights.view.data, bytes(*work), work->view.data, bytes(*reserve), reserve->view.data));
    ok(cudnnRNNBackwardWeights_v8(dnn_handle(), rnn, CUDNN_WGRAD_MODE_ADD, nullptr, x_desc, on_x.view.data, h_desc, on_hx.view.data,
                                  y_desc, on_y.view.data, weight_bytes, dweight_memory->view.data, bytes(*work), work->view.data,
                                  bytes(*reserve), reserve->view.data));
    for (const OnDevice* d : {&on_dx, &on_dhx, &on_dcx}) d->fetch();
    dweight_memory->fetch();
  }

  // Return parameters in halfstep's order: for each layer and direction w_ih, w_hh, b_ih, b_hh and w_hr, if present.
  std::vector<RnnParameter> parameters() const { return read(weights); }
  std::vector<RnnParameter> gradients() const { return read(dweights); }
  void set_parameters(const std::vector<RnnParameter>& values) {
    size_t next = 0;
    each([&](const std::string&, const Shape& shape, const std::vector<int64_t>& parts) {
      const Buffer& from = values.at(next++).value;
      const int64_t size = numel(shape) / int64_t(parts.size());
      for (int64_t i = 0; i < from.numel(); ++i) set(weights.view, parts[size_t(i / size)] + i % size, from[i]);
    });
  }
  std::string dropout_states() {
    drop_memory->fetch();
    return drop_states.raw();
  }
  void set_dropout_states(const std::string& states) {
    REQUIRE(cudaMemcpy(drop_memory->view.data, states.data(), size_t(drop_states.numel()), cudaMemcpyHostToDevice) == cudaSuccess);
  }

  const RnnCase c;
  const DType t;
  Buffer x, dy, y, dx, hx, dhy, cx, dcy, hy, dhx, cy, dcx, weights, dweights;
  bool keep_gradients = false;

 private:
  static size_t bytes(const OnDevice& d) { return size_t(numel(d.view.shape)); }
  Buffer data(int64_t size, unsigned seed) const { return uniform(t, {c.vectors(), size}, seed, -1, 1); }
  Buffer states(int64_t size, unsigned seed) const { return uniform(t, {c.layers * c.directions, c.batch, size}, seed, -1, 1); }

  // Calls f(name, shape, places of the gates' parts in the weight space) for every parameter.
  template <class F>
  void each(const F& f) const {
    const int gates = int(c.gates());
    for (int p = 0; p < int(c.layers * c.directions); ++p) {
      const int64_t in = p < c.directions ? c.input : c.outputs();
      const auto where = [&](int linear, bool bias) {
        void *m = nullptr, *b = nullptr;
        char* const base = reinterpret_cast<char*>(uintptr_t(1) << 20);  // never read
        ok(cudnnGetRNNWeightParams(dnn_handle(), rnn, p, weight_bytes, base, linear, m_desc, &m, b_desc, &b));
        void* const at = bias ? b : m;
        return at ? int64_t(static_cast<char*>(at) - base) / int64_t(size_of(t)) : -1;
      };
      const auto parts = [&](int first, int count, bool bias) {
        std::vector<int64_t> all;
        for (int g = first; g < first + count; ++g) all.push_back(where(g, bias));
        return all;
      };
      const auto give = [&](const char* name, const Shape& shape, const std::vector<int64_t>& of) {
        if (of[0] >= 0) f(name, shape, of);
      };
      give("w_ih", {gates * c.hidden, in}, parts(0, gates, false));
      give("w_hh", {gates * c.hidden, c.state()}, parts(gates, gates, false));
      give("b_ih", {gates * c.hidden}, parts(0, gates, true));
      give("b_hh", {gates * c.hidden}, parts(gates, gates, true));
      if (c.projected) give("w_hr", {c.projected, c.hidden}, parts(2 * gates, 1, false));
    }
  }
  std::vector<RnnParameter> read(const Buffer& from) const {
    std::vector<RnnParameter> all;
    each([&](const std::string& name, const Shape& shape, const std::vector<int64_t>& parts) {
      Buffer value = make(DType::f32, shape);
      const int64_t size = numel(shape) / int64_t(parts.size());
      for (int64_t i = 0; i < value.numel(); ++i) set(value.view, i, from[parts[size_t(i / size)] + i % size]);
      all.push_back({name, value});
    });
    return all;
  }

 public:
  cudnnRNNDescriptor_t rnn = nullptr;
  cudnnDropoutDescriptor_t dropout = nullptr;
  cudnnRNNDataDescriptor_t x_desc = nullptr, y_desc = nullptr;
  cudnnTensorDescriptor_t h_desc = nullptr, c_desc = nullptr, m_desc = nullptr, b_desc = nullptr;
  size_t weight_bytes = 0;
  Buffer drop_states;
  std::unique_ptr<OnDevice> drop_memory, dweight_memory, work, reserve;
};

}  // namespace halfstep::testing
