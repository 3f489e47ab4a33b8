// SPDX-License-Identifier: Apache-2.0
// Recurrent networks: one step, and sequences. Weights as in PyTorch: w_ih [G H, I], w_hh [G H, H], biases [G H] or none, for G
// gates and H hidden units. Autocast: low; gates and c are float32 inside, unless a device's library computes them (docs/tour.md).
#pragma once

#include <cstdint>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

class Generator;
class PackedWeights;

// ---- One step. x: [N, I], h and c: [N, H]. Without N: x [I], h and c [H]. An undefined h or c is zero. By name: tensors in this
// order, like torch._VF.lstm_cell(x, (h, c), w_ih, ...) flattened.

// Computes an LSTM's step. Gates i f g o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'). Returns (h', c').
std::pair<Tensor, Tensor> lstm_cell(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& w_ih, const Tensor& w_hh,
                                    const Tensor& b_ih = Tensor(), const Tensor& b_hh = Tensor());
// Computes a GRU's step. Gates r z n: n = tanh(x_n + sigmoid(r) h_n), h' = (1 - sigmoid(z)) n + sigmoid(z) h.
Tensor gru_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih = Tensor(),
                const Tensor& b_hh = Tensor());
// Return h' = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh), or its ReLU.
Tensor rnn_tanh_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih = Tensor(),
                     const Tensor& b_hh = Tensor());
Tensor rnn_relu_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih = Tensor(),
                     const Tensor& b_hh = Tensor());

// ---- Sequences, like torch.lstm and its siblings: L layers, each of which reads the outputs of the one below, in D directions.
//
// x: [T, N, I] ([N, T, I] with batch_first), or [T, I] without a batch. The initial states h [L D, N, H] and c [L D, N, H],
// without N if x has none, may be undefined: zero. `parameters`, flat: for each layer forwards, and then backwards if
// bidirectional, w_ih, w_hh, b_ih and b_hh (with biases) and w_hr (LSTM with projections). An LSTM with w_hr [P, H] computes h =
// W_hr (o tanh c), so P replaces H in the shape of h, of w_hh [4 H, P] and of the outputs; c keeps H. Returns the outputs of the
// last layer, [T, N, D H] in x's layout, and the last states.
//
// Packed: with `batch_sizes`, x is [sum of them, I]; the first batch_sizes[0] rows are step 0, and so on. Batch sizes never grow,
// and step t has the first batch_sizes[t] rows of the batch. States have N >= batch_sizes[0] rows; rows without a step keep their
// states. PackedSequence (layers/sequences/packed_sequence.h) makes such an x of sequences of any lengths.
struct SequenceOptions {
  int64_t num_layers = 1;
  bool bidirectional = false;
  bool batch_first = false;
  double dropout = 0;  // of the outputs of every layer except the last, in training
  bool training = false;
  std::vector<int64_t> batch_sizes = {};
  Generator* generator = nullptr;  // for dropout; null: the default one
  // Cache in which a device's library (docs/tour.md) may keep a copy of all parameters until one changes; for these parameters
  // only.
  PackedWeights* packed = nullptr;
};
struct SequenceResult {
  Tensor output, h;
};
struct LstmSequenceResult {
  Tensor output, h, c;
};
LstmSequenceResult lstm(const Tensor& x, const Tensor& h, const Tensor& c, const Tensors& parameters,
                        const SequenceOptions& options = {});
SequenceResult gru(const Tensor& x, const Tensor& h, const Tensors& parameters, const SequenceOptions& options = {});
SequenceResult rnn_tanh(const Tensor& x, const Tensor& h, const Tensors& parameters, const SequenceOptions& options = {});
SequenceResult rnn_relu(const Tensor& x, const Tensor& h, const Tensors& parameters, const SequenceOptions& options = {});

}  // namespace halfstep
