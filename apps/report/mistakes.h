// SPDX-License-Identifier: Apache-2.0
// The samples of the validation data that a trained model answers worst, to look at: wrong labels and unreadable inputs are seen at
// once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace halfstep::app {

struct Mistake {
  int64_t index;              // in the data
  std::string sample;         // "line 12" of a table's file, "cats/03.png", "sample 12"
  std::string truth, answer;  // names of classes, or numbers in the units of the file
  double confidence = 0;      // the answer's probability; of numbers the error
  std::string picture{};      // "data:image/png;base64,..."; empty: the sample is none
  bool is_coarse = false;     // the picture has so few pixels that they are to be seen
  std::vector<std::string> cells{};
};

struct Mistakes {
  std::string fault{};  // why nothing is known; then the rest is empty
  std::string split{};  // "val", "test"
  int64_t step = 0;     // of the checkpoint
  bool has_classes = true, has_texts = false;
  int64_t examined = 0, samples = 0, wrong = 0;
  std::vector<std::string> columns{};  // of the cells
  std::vector<Mistake> worst{};        // the most confident first; of numbers the largest errors
  std::vector<std::string> classes{};  // their names
  // Of every sample that was examined: what is right, the answer, and its probability; classes by number.
  struct Answered {
    double truth, answer, confidence;
  };
  std::vector<Answered> all{};
  std::vector<std::vector<int64_t>> confusion{};  // [class][answer], of not too many classes
  std::optional<double> rmse{}, r2{};             // of numbers, in the units of the file
};

// The run's best checkpoint on data.val, or on data.test where there is none. At most `most` samples are kept, and after `seconds`
// no more are examined.
Mistakes find_mistakes(const std::filesystem::path& run, int64_t most, double seconds);

// Their part of a page. run: its name in HTML, empty on the page of one run.
void write_mistakes(std::ostream& out, const std::string& run, const Mistakes& found);
// Did the models of these runs answer the same samples?
bool are_comparable(const std::vector<Mistakes>& runs);
// Of these: one table with a column for the answer of each run.
void write_mistakes_together(std::ostream& out, const std::vector<std::string>& names, const std::vector<Mistakes>& runs);

}  // namespace halfstep::app
