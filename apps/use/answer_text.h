// SPDX-License-Identifier: Apache-2.0
// Formats the numbers that a model answers with.
#pragma once

#include <string>

#include "framework/data/transforms/data_form.h"

namespace halfstep::app {

// Returns number i of an answer, or of its truth, with this many significant digits; with more, up to 15, where they are needed for
// a thousandth of its column's deviation in the training data, as for numbers around 4e7 that differ by 1.
std::string answer_text(const DataForm& form, size_t i, double value, int digits);
// Returns whether float32 does not have such a thousandth, so that arrays of answers must be float64.
bool needs_double(const DataForm& form);

}  // namespace halfstep::app
