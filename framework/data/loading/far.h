// SPDX-License-Identifier: Apache-2.0
// Numbers that the training data had nothing like. Not a public header.
#pragma once

#include <algorithm>
#include <cmath>

namespace halfstep {

// Is a number further outside of the training data's range than ten times its width? NaN and infinity are not.
inline bool is_far(double value, double low, double high) {
  constexpr double kFarWidths = 10;
  const double width = high > low ? high - low : std::max(std::abs(high), 1.0);
  return std::isfinite(value) && (value < low - kFarWidths * width || value > high + kFarWidths * width);
}

}  // namespace halfstep
