// SPDX-License-Identifier: Apache-2.0
// Finds inputs whose numbers float32 holds too roughly, such as seconds since 1970.
#pragma once

#include <string>

#include "framework/data/transforms/data_form.h"

namespace halfstep::app {

// Returns the scaled columns of which float32 lacks a thousandth of the deviation: "ts" (mean 1.7e+09, deviation 57.7). Arrays in
// the units of the file must then be float64 or whole numbers. Empty: none.
std::string wide_inputs(const DataForm& form);

// Returns a warning for inputs in the units of the file that have this dtype; empty: they hold all digits.
std::string narrow_inputs_warning(const DataForm& form, DType dtype);

}  // namespace halfstep::app
