// SPDX-License-Identifier: Apache-2.0
// Arrays of a user as inputs of a model: what their shape, dtype and range must be, by those of the training data.
#pragma once

#include <filesystem>
#include <string>

#include "apps/schema/json.h"
#include "framework/data/transforms/data_form.h"
#include "framework/tensor/tensor.h"

namespace halfstep::app {

// As the model's data has them, with a batch dimension; bytes become pixels in [0, 1] for a model of pixels,
// unless all are 0 and 1. Throws DataError for
// inputs of another shape, tokens outside the vocabulary, and as check_range. Warns of numbers that are not finite, or far outside
// of the training data's. what: their name.
Tensor array_inputs(const Tensor& given, const DataForm& form, const std::string& what);

// Arrays of a file: inputs, and the answers that are known to be right if it has an array of targets. .npz and .safetensors have
// them under the names that the training data's config gives, or as "x" and "y"; inputs may be the only array of the latter.
struct ArrayFile {
  Tensor inputs, targets;  // targets: undefined where there are none
};
ArrayFile read_array_file(const std::filesystem::path& path, const Json& config);

// Targets [N, ...] as metrics take them: classes i64 [N] (also of booleans, [N, 1] and one-hot rows), -1 for one that the training
// data does not have; others as they are, of the shape of the model's targets. Undefined, with a warning, for other shapes.
Tensor known_answers(const Tensor& targets, int64_t samples, const DataForm& form, const std::string& what,
                     std::optional<int64_t> ignored);

// Throws DataError for numbers [N, ...] that are surely in other units than the training data's: pixels from 0 to 255, or
// normalised ones, for a model of pixels in [0, 1]; and the like for arrays, whose range the form knows.
void check_range(const Tensor& x, const DataForm& form, const std::string& what);

}  // namespace halfstep::app
