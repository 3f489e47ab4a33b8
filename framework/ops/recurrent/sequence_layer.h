// SPDX-License-Identifier: Apache-2.0
// One layer of a recurrent network, in one direction, over all steps; recurrent.h composes networks of these.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/backend/recurrent_library.h"
#include "framework/ops/core/call.h"

namespace halfstep {

const OpInfo& info_of(Cell cell);

// The indices of its inputs. All but x, w_ih and w_hh may be undefined.
enum : size_t { kX, kH, kC, kWih, kWhh, kBih, kBhh, kWhr, kLayerInputs };

struct LayerSteps {
  Cell cell;
  bool reverse;
  int64_t batch;               // number of rows of the states
  std::vector<int64_t> sizes;  // number of rows of each step, in the order of time: the first rows; they never grow
};
// x: [sum of steps.sizes, I], h: [batch, P], c: [batch, H]. Returns y [.., P], the last h and, of an LSTM, the last c.
Tensors sequence_layer(const Tensors& in, LayerSteps steps);

}  // namespace halfstep
