// SPDX-License-Identifier: Apache-2.0
// Arrays of a user as inputs of a model: what their shape, dtype and range must be, by those of the training data.
#pragma once

#include <string>

#include "framework/data/form.h"

namespace halfstep::app {

// As the model's data has them, with a batch dimension; bytes become pixels in [0, 1] for a model of pixels,
// unless all are 0 and 1. Throws DataError for
// inputs of another shape, tokens outside the vocabulary, and as check_range. Warns of numbers that are not finite, or far outside
// of the training data's. what: their name.
Tensor array_inputs(const Tensor& given, const DataForm& form, const std::string& what);

// Throws DataError for numbers [N, ...] that are surely in other units than the training data's: pixels from 0 to 255, or
// normalised ones, for a model of pixels in [0, 1]; and the like for arrays, whose range the form knows.
void check_range(const Tensor& x, const DataForm& form, const std::string& what);

}  // namespace halfstep::app
