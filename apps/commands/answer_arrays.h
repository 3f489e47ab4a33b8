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
// ...]. .npz has these as "prediction", and with `probabilities` an array "probabilities" beside. An input without an answer is NaN
// or -1; a file of unknown length that cannot be read has one such row.
class AnswerArrays {
 public:
  // Throws ConfigError for answers that cannot be arrays. probabilities: the model has them.
  AnswerArrays(std::filesystem::path file, const DataForm& form, bool probabilities);
  void add(const Prediction& prediction);
  // Writes the file, and describes it to `messages`.
  void write(std::ostream& messages) const;

 private:
  void add_row(const Prediction& prediction);
  std::filesystem::path file_;
  const DataForm& form_;
  bool is_npz_, has_probabilities_;
  int64_t rows_ = 0, faults_ = 0;
  std::string whole_files_;       // those whose rows cannot be counted
  size_t width_ = 0;              // count of numbers or classes in an answer; 0: no input had an answer yet
  std::vector<int64_t> classes_;  // width_ in every row
  std::vector<double> numbers_;   // width_ in every row
  std::vector<float> shares_;     // one for each class in every row
  std::unordered_map<std::string, int64_t> class_numbers_;  // by name
};

}  // namespace halfstep::app
