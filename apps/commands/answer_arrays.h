// SPDX-License-Identifier: Apache-2.0
// Answers as arrays for NumPy: halfstep predict --out y.npy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <unordered_map>
#include <vector>

#include "apps/use/predictor.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep::app {

// Returns whether the name ends in .npy or .npz.
bool is_array_file(const std::string& file);

// Writes answers. .npy has a row for each input, in their order: numbers as float32 [N, ...] with a target's shape, [N] for a
// column of a table; classes as int64 [N], or with `probabilities` float32 [N, classes]; a class for each position as int64 [N,
// ...]. .npz has these as "prediction", and probabilities beside classes. An input without an answer is NaN or -1.
class AnswerArrays {
 public:
  // Throws ConfigError for answers that cannot be arrays.
  AnswerArrays(std::filesystem::path file, const DataForm& form, bool probabilities);
  void add(const Prediction& p);
  void write(std::ostream& says) const;

 private:
  std::filesystem::path file_;
  const DataForm& form_;
  bool zipped_, probabilities_;
  int64_t rows_ = 0, faults_ = 0;
  size_t each_ = 0;                                 // count of numbers in an answer
  std::vector<int64_t> classes_;                    // each_ in every row
  std::vector<float> numbers_, shares_;             // each_ in every row; one for each class
  std::unordered_map<std::string, int64_t> place_;  // class numbers by name
};

}  // namespace halfstep::app
