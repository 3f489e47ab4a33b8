// SPDX-License-Identifier: Apache-2.0
// Windows over a series of numbers: the values of a window, and those after it, to be predicted.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/csv.h"
#include "framework/data/dataset.h"

namespace halfstep {

struct TimeSeriesOptions {
  std::string column{};  // by name or index; "": the last
  std::string time{};    // a column that must grow from row to row, as dates, numbers or text; "": none
  int64_t window = 1;    // values of the input
  int64_t horizon = 1;   // values after them, to be predicted
  int64_t stride = 1;    // from one window to the next
  double begin = 0,
         end = 1;           // the part with the targets: rows [floor(begin n), floor(end n)). Windows may reach back before it
  bool standardize = true;  // (value - mean) / std, inputs and targets alike
  std::optional<TargetScale> scaling{};  // used instead of this part's own, e.g. the training part's
  CsvOptions::Header header = CsvOptions::Header::automatic;
  CsvFormat format{};
};

// Inputs f32 [window, 1], targets f32 [horizon], in order of time. target_scale() is the scaling from the column's values to
// targets, so that errors can be reported in its units. Throws as CsvDataset; also DataError for times that do not grow, and for a
// part without a window.
class TimeSeriesDataset : public Dataset {
 public:
  explicit TimeSeriesDataset(const std::filesystem::path& path, const TimeSeriesOptions& options = {});

  int64_t size() const override { return size_; }
  Shape input_shape() const override { return {options_.window, 1}; }
  Shape target_shape() const override { return {options_.horizon}; }
  int64_t classes() const override { return 0; }
  TargetScale target_scale() const override { return scaling_; }
  Batch batch(std::span<const int64_t> indices) const override;
  std::string describe() const override;
  DataNotes notes() const override { return notes_; }
  DataForm form() const override;

 private:
  std::string label_;
  TimeSeriesOptions options_;
  std::vector<float> values_;  // of the whole file, scaled
  TargetScale scaling_;
  DataNotes notes_;
  int64_t first_ = 0, size_ = 0;  // row of the first target; samples
};

// The last `window` values of a file, scaled: [window, 1] f32, from which the values after the file's end are predicted. Throws as
// TimeSeriesDataset, and DataError for a file that has fewer.
Tensor read_last_window(const std::filesystem::path& path, const TimeSeriesOptions& training);

}  // namespace halfstep
