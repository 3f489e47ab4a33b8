// SPDX-License-Identifier: Apache-2.0
// Which numbers are pixels in [0, 1], as transforms of pictures take them.
#pragma once

#include <limits>
#include <string>

#include "apps/schema/json.h"
#include "framework/data/sets/dataset.h"

namespace halfstep::app {

constexpr double kMostPixel = 2, kLeastPixel = -0.5;  // bounds of pixels: sharpening and resizing may leave [0, 1]

// Returns the largest value of pixels of as many bits as the numbers up to `high` have.
double white_of(double high);

// Range and mean of the input numbers of a data set.
struct InputRange {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  double mean = 0;
  bool is_known() const { return low <= high; }
};
constexpr InputRange kPixelRange{0, 1, 0.5};  // of pictures

// Measures the inputs of some samples, spread evenly; unknown for inputs that are no floats.
InputRange input_range(const Dataset& data);

// Returns whether some transform may be for pixels in [0, 1]: only then is the range of the inputs of interest.
bool may_take_pixels(const Json& transforms);
// Returns what is wrong with a transform that is for pixels in [0, 1] and gets other numbers, with a remedy; empty: nothing.
// range: of the inputs before the transforms.
std::string pixel_misfit(const Json& transforms, InputRange range);

}  // namespace halfstep::app
