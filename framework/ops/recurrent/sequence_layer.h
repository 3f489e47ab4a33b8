// SPDX-License-Identifier: Apache-2.0
// One layer of a recurrent network, in one direction, over all steps; recurrent.h composes networks of these.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/backend/recurrent_library.h"
#include "framework/ops/core/call.h"

namespace halfstep {

const OpInfo& info_of(Cell cell);

// Indices of sequence_layer's inputs. With I features, H units, outputs of width P and G gates (gates_of):
//   x [rows of all steps, I], h [batch, P], c [batch, H], w_ih [G H, I], w_hh [G H, P], b_ih and b_hh [G H], w_hr [P, H]
// All but x, w_ih and w_hh may be undefined; without w_hr, P = H.
enum : size_t { kX, kH, kC, kWih, kWhh, kBih, kBhh, kWhr, kLayerInputs };

struct LayerSteps {
  Cell cell;
  bool reverse;
  int64_t batch;               // number of rows of the states
  std::vector<int64_t> sizes;  // by time: a step has the first sizes[t] rows; sizes never grow
};
// Returns y [rows of all steps, P], the last h and, of an LSTM, the last c.
Tensors sequence_layer(const Tensors& in, LayerSteps steps);

}  // namespace halfstep
