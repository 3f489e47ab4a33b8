// SPDX-License-Identifier: Apache-2.0
// Detects numbers far from all training data. Not a public header.
#pragma once

#include <algorithm>
#include <cmath>

namespace halfstep {

// Returns whether a number is outside the training data's range [low, high] by more than ten times its width; a range of one value
// counts as |high| wide, but at least 1. False for NaN and infinity.
inline bool is_far(double value, double low, double high) {
  constexpr double kFarWidths = 10;
  const double width = high > low ? high - low : std::max(std::abs(high), 1.0);
  return std::isfinite(value) && (value < low - kFarWidths * width || value > high + kFarWidths * width);
}

}  // namespace halfstep
