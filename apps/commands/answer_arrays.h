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

// Does the name end in .npy or .npz?
bool is_array_file(const std::string& file);

// .npy: a row for each input, in their order. Numbers are float32, [N, ...] with the shape of a target, and [N] for a column of a
// table; classes are int64 [N], their numbers, and with `probabilities` float32 [N, classes]; a class for each position is int64
// [N, ...]. .npz has these as "prediction", and the probabilities beside the classes. An input without an answer is NaN or -1.
class AnswerArrays {
 public:
  // Throws ConfigError for answers that are no array.
  AnswerArrays(std::filesystem::path file, const DataForm& form, bool probabilities);
  void add(const Prediction& p);
  void write(std::ostream& says) const;

 private:
  std::filesystem::path file_;
  const DataForm& form_;
  bool zipped_, probabilities_;
  int64_t rows_ = 0, faults_ = 0;
  size_t each_ = 0;                                 // numbers of an answer
  std::vector<int64_t> classes_;                    // each_ of every row
  std::vector<float> numbers_, shares_;             // the same; and one for each class
  std::unordered_map<std::string, int64_t> place_;  // of the class with this name
};

}  // namespace halfstep::app
