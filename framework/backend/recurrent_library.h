// SPDX-License-Identifier: Apache-2.0
// Recurrent networks computed by a device's library: all layers and directions in one call.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "framework/tensor/view.h"

namespace halfstep {

// Gates of an LSTM are i f g o, of a GRU r z n; framework/ops/recurrent/recurrent.h has the formulas.
enum class Cell : uint8_t { lstm, gru, rnn_tanh, rnn_relu };
inline int64_t gates_of(Cell cell) { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }

struct RecurrentArgs {
  enum class Layout : uint8_t {
    steps_first,  // x: [steps, batch, features]
    batch_first,  // x: [batch, steps, features]
    packed,       // x: [sum of lengths, features]: the first steps of all sequences, then the existing second steps...
  };
  Cell cell;
  DType dtype;  // of all tensors
  int64_t layers, directions;
  int64_t features, units, width;  // width: of h and of one direction's outputs; equals `units` without projections
  bool biased, projected;
  Layout layout;
  int64_t steps, batch;
  std::vector<int64_t> lengths = {};  // packed: of each sequence, at least 1, longest first
};

// Memory that the library needs.
struct RecurrentSpaces {
  int64_t weights;               // elements of the one tensor that has all parameters
  std::vector<int64_t> offsets;  // starts in it, in elements; for each layer and direction w_ih w_hh, b_ih b_hh, w_hr
  int64_t reserve;               // bytes that a forward keeps for its backward
  bool recording;                // whether the call is being recorded: then all tensors that it reads must be made in the recording
};

// Dense tensors, aligned to 16 bytes. With parts = layers * directions: h [parts, batch, width], c [parts, batch, units]. y is
// like x, with directions * width features.
struct RecurrentTensors {
  TensorView x, weights;    // read
  TensorView h, c;          // read; empty: zero
  TensorView y;             // written by the forward, read by the backward
  TensorView h_out, c_out;  // written by the forward; c_out of an LSTM
  TensorView reserve;       // written by the forward; empty: without a backward. Used up by the backward
};
struct RecurrentGradients {
  TensorView y, h, c;   // read; h and c may be empty: zero
  TensorView dx;        // written
  TensorView dh, dc;    // written if given
  TensorView dweights;  // laid out like the weights; added to if given
};

// Implemented by backends with a library for whole networks. It does nothing for work that it declines.
class RecurrentLibrary {
 public:
  virtual ~RecurrentLibrary() = default;
  // Returns empty if it declines. Throws NotPrepared (framework/backend/dnn.h) if a recording contains the first call of its kind.
  virtual std::optional<RecurrentSpaces> recurrent_spaces(const RecurrentArgs& args) = 0;
  // Returns false if it declines after all.
  virtual bool recurrent(const RecurrentArgs& args, const RecurrentTensors& tensors) = 0;
  virtual bool recurrent_backward(const RecurrentArgs& args, const RecurrentTensors& tensors, const RecurrentGradients& grads) = 0;
  // Returns the number of forwards and backwards it has computed; replays of recordings do not count.
  virtual uint64_t recurrent_calls() const = 0;
};

}  // namespace halfstep
