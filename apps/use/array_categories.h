// SPDX-License-Identifier: Apache-2.0
// Checks the categories in a user's arrays for a model of tables.
#pragma once

#include <string>

#include "framework/data/transforms/data_form.h"
#include "framework/tensor/tensor.h"

namespace halfstep::app {

// Throws DataError for inputs [N, columns], in units of the file, that are no category of a text column: NaN, which no fill of
// numbers replaces, and numbers that are not whole or out of range; of 0/1 inputs more than one 1. Without texts among the training
// data's columns it does nothing. what: the inputs' name, for messages.
void check_categories(const Tensor& x, const DataForm& form, const std::string& what);

}  // namespace halfstep::app
