// SPDX-License-Identifier: Apache-2.0
// Runs of recurrent layers of any class, for tests that compare two of them.
#pragma once

#include <utility>
#include <vector>

#include "layers/sequences/recurrent.h"

namespace halfstep::testing {

// Returns the output (packed: its data) and the states of a layer for three sequences of up to five steps, with one seed's dropout.
// `lengths`: of the sequences in x; `packed`: x is packed before.
inline Tensors run_recurrent(Module& layer, const Tensor& x, const Tensor& h, const Tensor& c, bool packed, bool lengths) {
  manual_seed(11);
  const std::vector<int64_t> given = lengths ? std::vector<int64_t>{2, 5, 0} : std::vector<int64_t>();
  const auto call = [&](auto& own, const auto& state) {
    if (packed) {
      const auto out = own(pack_padded_sequence(x, {2, 5, 3}, false, false), state);
      return std::make_pair(out.output.data, out.state);
    }
    const auto out = own(x, state, given);
    return std::make_pair(out.output, out.state);
  };
  if (auto* const lstm = dynamic_cast<LSTM*>(&layer)) {
    const auto [y, state] = call(*lstm, LSTM::State{h, c});
    return {y, state.h, state.c};
  }
  const auto [y, state] = call(dynamic_cast<OneStateLayer&>(layer), h);
  return {y, state};
}

}  // namespace halfstep::testing
