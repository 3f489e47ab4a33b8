// SPDX-License-Identifier: Apache-2.0
// What the numbers of a model mean: which name has which number, and in which units inputs and answers are. Training data decide
// it, and weights of other data may fit in shape while they mean something else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/schema/json.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep::app {

// Facts about a model's training data, as a checkpoint's data.json has them.
struct StoredData {
  DataForm form;
  Json transforms;  // see prediction_transforms
};
// Throws CheckpointError.
StoredData read_stored_data(const nlohmann::json& data);

// A number whose name differs between two sets of training data.
struct OtherName {
  std::string what;          // "class", "token", "input", "target", or `category of "town"`
  int64_t number = 0;        // the first that differs
  std::string then, now;     // its names
  bool is_moved = false;     // whether a name of both has another number
  int64_t width = 0;         // dimension of tensors that count these names
  std::string text() const;  // `class 0 is "dog", before "cat"`
};
// Compares the names that both have, in any spelling; tokens by their bytes. Names that come later do not count.
std::vector<OtherName> other_names(const DataForm& then, const DataForm& now);

// Returns whether the scales of two columns differ by more than data that grew would make them.
bool is_other_scale(const ColumnScale& then, const ColumnScale& now);
// Describes the first input, or else the targets, of which that is true: `input "area" has mean 500 and deviation 20, before 5 and
// 0.2`; also a Normalize of another mean or deviation. Empty: there is none.
std::string other_scale(const StoredData& then, const StoredData& now);

}  // namespace halfstep::app
