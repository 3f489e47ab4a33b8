// SPDX-License-Identifier: Apache-2.0
// Checks the categories in a user's arrays for a model of tables.
#pragma once

#include <string>

#include "framework/data/transforms/data_form.h"
#include "framework/tensor/tensor.h"

namespace halfstep::app {

// Throws DataError for inputs [N, columns], in units of the file, that are no category of a text column: NaN where a missing value
// is none, and numbers that are not whole or out of range; 0/1 inputs that are not 0 but for a single 1. Only 0 is right where an
// unknown value is read as missing, and that is no category. Without texts among the training data's columns it does nothing.
// what: the inputs' name, for messages.
void check_categories(const Tensor& x, const DataForm& form, const std::string& what);

}  // namespace halfstep::app
