// SPDX-License-Identifier: Apache-2.0
// Networks of recurrent layers as a device's library computes them: all layers and directions in one call.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "framework/tensor/view.h"

namespace halfstep {

// Gates: of an LSTM i f g o, of a GRU r z n; framework/ops/recurrent/recurrent.h has the formulas.
enum class Cell : uint8_t { lstm, gru, rnn_tanh, rnn_relu };
inline int64_t gates_of(Cell cell) { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }

struct RecurrentArgs {
  enum class Layout : uint8_t {
    steps_first,  // x: [steps, batch, features]
    batch_first,  // x: [batch, steps, features]
    packed,       // x: [sum of lengths, features]: the first step of every sequence, then the second of those that have one...
  };
  Cell cell;
  DType dtype;  // of all tensors
  int64_t layers, directions;
  int64_t features, units, width;  // width: of h and of the outputs of one direction, which is `units` without projections
  bool biased, projected;
  Layout layout;
  int64_t steps, batch;
  std::vector<int64_t> lengths = {};  // packed: of each sequence, 1 or more, the longest first
};

// What the library needs memory for.
struct RecurrentSpaces {
  int64_t weights;               // elements of the one tensor that has all parameters
  std::vector<int64_t> offsets;  // where in it, in elements, each begins: of each layer and direction w_ih w_hh, b_ih b_hh, w_hr
  int64_t reserve;               // bytes that a forward leaves for its backward
  bool recording;                // the call is being recorded, so everything that it reads must be made in the recording
};

// Dense, and on multiples of 16 bytes; of parts = layers * directions: h [parts, batch, width], c [parts, batch, units]. y as x,
// with directions * width features.
struct RecurrentTensors {
  TensorView x, weights;    // read
  TensorView h, c;          // read; empty: zero
  TensorView y;             // written by the forward, read by the backward
  TensorView h_out, c_out;  // written by the forward; c_out of an LSTM
  TensorView reserve;       // written by the forward; empty: there will be no backward. Spent by the backward
};
struct RecurrentGradients {
  TensorView y, h, c;   // read; h and c may be empty: zero
  TensorView dx;        // written
  TensorView dh, dc;    // written where given
  TensorView dweights;  // laid out as the weights; added to, where given
};

// Backends with a library for whole networks also implement this interface. Work that it declines is left undone.
class RecurrentLibrary {
 public:
  virtual ~RecurrentLibrary() = default;
  // Empty: it declines. Throws NotPrepared (framework/backend/dnn.h) in a recording where this is the first call of its kind.
  virtual std::optional<RecurrentSpaces> recurrent_spaces(const RecurrentArgs& args) = 0;
  // False: it declines after all.
  virtual bool recurrent(const RecurrentArgs& args, const RecurrentTensors& tensors) = 0;
  virtual bool recurrent_backward(const RecurrentArgs& args, const RecurrentTensors& tensors, const RecurrentGradients& grads) = 0;
  // How many forwards and backwards it has taken, ever; those of replayed recordings are not counted.
  virtual uint64_t recurrent_calls() const = 0;
};

}  // namespace halfstep
