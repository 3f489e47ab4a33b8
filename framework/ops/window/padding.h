// SPDX-License-Identifier: Apache-2.0
// Padding. Names, defaults and errors' conditions are PyTorch's.
#pragma once

#include <concepts>
#include <string>

#include "framework/tensor/tensor.h"

namespace halfstep {

// The mode of pad():
//   constant   value, any dtype
//   reflect    mirrored at the border element, which is not repeated; padding < size
//   replicate  the border element
//   circular   the other end of the part that negative padding leaves; padding <= its size
// The last three take the last 1 to 3 dimensions of [C, ...] or [N, C, ...].
struct PadArguments {
  std::string mode = "constant";
  Number value = 0.0;
};
// Returns x with more elements around. padding: pairs (before, after) from the last dimension on; negative ones cut off.
Tensor pad(const Tensor& x, const Dims& padding, const PadArguments& options = {});
template <std::convertible_to<std::string> Mode>
Tensor pad(const Tensor& x, const Dims& padding, const Mode& mode, Number value = 0.0) {
  return pad(x, padding, PadArguments{mode, value});
}

}  // namespace halfstep
