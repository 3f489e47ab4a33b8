// SPDX-License-Identifier: Apache-2.0
// Finds and shows the validation samples that a trained model answers worst, which reveals wrong labels and unreadable inputs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace halfstep::app {

// A sample with a wrong answer.
struct Mistake {
  int64_t index;              // in the data set
  std::string sample;         // "line 12" of a table's file, "cats/03.png", "sample 12"
  std::string truth, answer;  // names of classes, or numbers in the units of the file
  double confidence = 0;      // the answer's probability; for numbers the error
  std::string picture{};      // "data:image/png;base64,..."; empty: not a picture
  bool is_coarse = false;     // so few pixels that they are drawn as squares
  std::vector<std::string> cells{};  // of the sample, in the columns of Mistakes
};

// The answers of a run's model to a split.
struct Mistakes {
  std::string fault{};  // reason for the lack of results; all else is then empty
  std::string split{};  // "val", "test"
  int64_t step = 0;     // of the checkpoint
  bool has_classes = true, has_texts = false;
  int64_t examined = 0, samples = 0, wrong = 0;
  std::vector<std::string> columns{};  // of the cells
  std::vector<Mistake> worst{};        // most confident first; for numbers largest errors first
  std::vector<std::string> classes{};  // their names
  // All examined samples: correctness, answer and its probability; classes by number.
  struct Answered {
    double truth, answer, confidence;
  };
  std::vector<Answered> all{};
  std::vector<std::vector<int64_t>> confusion{};  // [class][answer]; empty for many classes
  std::optional<double> rmse{}, r2{};             // for numbers, in the units of the file
};

// Examines the run's best checkpoint on data.val, or else on data.test. Keeps at most `most_samples`, and stops after `seconds`.
Mistakes find_mistakes(const std::filesystem::path& run, int64_t most_samples, double seconds);

// Writes them as a part of a page. run: its name in HTML, empty on a page of one run.
void write_mistakes(std::ostream& out, const std::string& run, const Mistakes& found);
// Returns whether the models of these runs answered the same samples.
bool are_comparable(const std::vector<Mistakes>& runs);
// Writes one table, with a column of answers for each run.
void write_mistakes_together(std::ostream& out, const std::vector<std::string>& names, const std::vector<Mistakes>& runs);

}  // namespace halfstep::app
