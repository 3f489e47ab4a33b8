// SPDX-License-Identifier: Apache-2.0
// Stacked recurrent layers with nothing in between: in one call of the device's library if it accepts them (RecurrentLibrary of
// framework/backend/recurrent_library.h), else layer by layer (sequence_layer.h).
#pragma once

#include <span>

#include "framework/ops/recurrent/recurrent.h"
#include "framework/ops/recurrent/sequence_layer.h"

namespace halfstep {

inline constexpr size_t kFirstParameter = 3;  // among the inputs of a network, after x, h and c

// A network's arguments but for its tensors.
struct NetworkSteps {
  Cell cell;
  int64_t layers, directions;  // directions: 1 or 2
  RecurrentArgs::Layout layout;
  int64_t batch;               // number of rows of the states
  std::vector<int64_t> sizes;  // as in LayerSteps
  size_t each;                 // parameters per layer and direction: w_ih w_hh; 4 or 5 with b_ih b_hh; 3 or 5 with w_hr
  PackedWeights* packed = nullptr;  // as in SequenceOptions
  bool owns = true;  // whether only this network uses these parameters, so that they may move into the library's layout

  int64_t parts() const { return layers * directions; }
};

// Returns the parameters of one layer and direction in the order of sequence_layer.h, from a flat list with `each` of them.
Tensors parameters_of(std::span<const Tensor> flat, size_t place, size_t each);

// Computes the network. in: x in the layout of `steps`, h [parts, batch, P] and c [parts, batch, H] or undefined, and the
// parameters, flat. given: the parameters before a region cast them; their 16-bit copies may move into the library's layout. The
// result's y is like x, and its c undefined except for an LSTM.
LstmSequenceResult sequence_network(const Tensors& in, std::span<const Tensor> given, const NetworkSteps& steps);

}  // namespace halfstep
