// SPDX-License-Identifier: Apache-2.0
// Converts a user's arrays to a model's inputs: checks shape, dtype and range against the training data's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "apps/schema/json.h"
#include "framework/data/transforms/data_form.h"
#include "framework/tensor/tensor.h"

namespace halfstep::app {

enum class ArrayUnits : uint8_t { file, scaled };  // of columns that the training data scaled

// Returns the array in the form of the model's data, with a batch dimension; bytes become pixels in [0, 1] for a model of pixels,
// unless all are 0 and 1. Throws DataError for inputs of another shape, tokens outside the vocabulary, and as check_range and
// check_categories. Warns of numbers that are not finite, or far outside the training data's range, in units of the file. Bytes of
// pixels become float32, other numbers keep their dtype until Predictor::from_units. what: the inputs' name, for messages.
Tensor array_inputs(const Tensor& given, const DataForm& form, const std::string& what, ArrayUnits units = ArrayUnits::file);

// Returns for each sample of these inputs, [N, ...] or one sample, why it alone cannot be read: a category or token that the
// training data lacks. Empty: none has such a fault, or all of them have another one, which array_inputs throws.
std::vector<std::string> sample_faults(const Tensor& given, const DataForm& form, const std::string& what);
// Returns the samples, [N, ...], without those that have a fault.
Tensor readable_samples(const Tensor& given, const DataForm& form, const std::vector<std::string>& faults);

// Arrays of a file: inputs, and targets if it has them. .npz and .safetensors have them under the names of the training data's
// config, or as "x" and "y"; in the latter inputs may be the only array.
struct ArrayFile {
  Tensor inputs, targets;  // targets: undefined if there are none
};
ArrayFile read_array_file(const std::filesystem::path& path, const Json& config);

// Converts targets [N, ...] for metrics: classes become i64 [N] (also booleans, [N, 1] and one-hot rows), with -1 for classes that
// the training data lacks; others are unchanged, of the model's target shape. Returns undefined, with a warning, for other shapes.
// ignored: the class that the loss leaves out.
Tensor known_answers(const Tensor& targets, int64_t samples, const DataForm& form, const std::string& what,
                     std::optional<int64_t> ignored);

// Throws DataError for numbers [N, ...] that are certainly in other units than the training data's: pixels from 0 to 255, or
// normalised ones, for a model of pixels in [0, 1]; likewise for arrays whose range the form has.
void check_range(const Tensor& x, const DataForm& form, const std::string& what);

}  // namespace halfstep::app
