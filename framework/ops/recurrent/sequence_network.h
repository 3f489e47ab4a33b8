// SPDX-License-Identifier: Apache-2.0
// Recurrent layers one above the other, without anything in between: in one call of the device's library where it takes them
// (RecurrentLibrary of framework/backend/recurrent_library.h), else layer by layer (sequence_layer.h).
#pragma once

#include <span>

#include "framework/ops/recurrent/recurrent.h"
#include "framework/ops/recurrent/sequence_layer.h"

namespace halfstep {

struct NetworkSteps {
  Cell cell;
  int64_t layers, ways;  // ways: 2 where there is a layer in each direction
  RecurrentArgs::Layout layout;
  int64_t batch;               // rows of the states
  std::vector<int64_t> sizes;  // as LayerSteps has them
  size_t each;                 // parameters of a layer and direction: w_ih w_hh, b_ih b_hh (each >= 4), w_hr (each odd)
  PackedWeights* packed = nullptr;
  bool owns = true;  // no other network has these parameters in turn: the library's layout is theirs, not a copy's

  int64_t parts() const { return layers * ways; }
};

// The parameters of one layer and direction in the order of sequence_layer.h, from a flat list with `each` of them.
Tensors parameters_of(std::span<const Tensor> flat, size_t place, size_t each);

// in: x as the layout says, h [parts, batch, P] and c [parts, batch, H] or undefined, and the parameters, flat. `given`: the
// parameters as they were before a region cast them; their 16-bit copies may move to where the library wants them.
// y as x; c undefined but for an LSTM.
LstmSequenceResult sequence_network(const Tensors& in, std::span<const Tensor> given, const NetworkSteps& steps);

}  // namespace halfstep
