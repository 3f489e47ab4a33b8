// SPDX-License-Identifier: Apache-2.0
// Windows over a series of numbers: the values of a window, and those after it, to be predicted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/sets/dataset.h"
#include "framework/data/tables/csv.h"

namespace halfstep {

struct SeriesRows;  // framework/data/tables/series_rows.h

// How far apart the rows of a series usually are.
struct SeriesStep {
  // month: of the calendar, whatever its days. business_day: days of the week that occur, where some never do.
  enum class Unit : uint8_t { number, day, business_day, month };
  Unit unit = Unit::number;
  double size = 0;    // in that unit; 0: not known
  uint8_t week = 31;  // of business_day: a bit for each day of the week, Monday is the lowest
  bool operator==(const SeriesStep&) const = default;
};

// What is done about values that are missing: cells that are empty or hold one of TimeSeriesOptions::missing_words, and rows that
// the times lack. refuse: such a cell is an error. drop: its row is left out. Of both, no window crosses a place where a row is
// lacking. last: the last value before it. interpolate: on the straight line between its neighbours; but a window sees no value
// from behind its end, so one whose later neighbour lies there is the last value before it, as where a file ends. Filled values are
// inputs alone: windows whose next values are missing are left out.
enum class SeriesMissing : uint8_t { refuse, drop, last, interpolate };

struct TimeSeriesOptions {
  std::vector<std::string> columns{};  // inputs, by name or index; empty: the last
  bool all_columns = false;            // in place of `columns`: all of numbers but those of `time`
  std::vector<std::string> target{};   // those of them that are predicted; empty: all
  // A column that must grow from row to row, of dates or numbers; or the columns of the year, the month and so on. Empty: none.
  std::vector<std::string> time{};
  int64_t window = 1;   // rows of the input
  int64_t horizon = 1;  // rows after them, to be predicted
  int64_t stride = 1;   // from one window to the next
  double begin = 0,
         end = 1;           // the part with the targets: rows [floor(begin n), floor(end n)). Windows may reach back before it
  bool standardize = true;  // (value - mean) / std of each column, inputs and targets alike
  std::vector<TargetScale> scaling{};  // of each column, used instead of this part's own, e.g. the training part's
  SeriesMissing missing = SeriesMissing::refuse;
  std::vector<std::string> missing_words{};
  std::optional<SeriesStep> step{};  // the usual one of the training data, by which gaps of another file are found
  CsvOptions::Header header = CsvOptions::Header::automatic;
  CsvFormat format{};
};

// Inputs f32 [window, columns], targets f32 [horizon * targets] (those of the first row, then of the second), in order of time.
// target_scale() is the scaling from the columns' values to targets, so that errors can be reported in their units. Throws as
// CsvDataset; also DataError for times that do not grow and for a part without a window.
class TimeSeriesDataset : public Dataset {
 public:
  explicit TimeSeriesDataset(const std::filesystem::path& path, const TimeSeriesOptions& options = {});

  int64_t size() const override { return int64_t(starts_.size()); }
  Shape input_shape() const override;
  Shape target_shape() const override;
  int64_t classes() const override { return 0; }
  TargetScale target_scale() const override;
  const std::vector<TargetScale>& scaling() const { return options_.scaling; }  // of each column
  const TimeSeriesOptions& options() const { return options_; }  // with the names, the step and so on that were found
  Batch batch(std::span<const int64_t> indices) const override;
  std::string describe() const override;
  DataNotes notes() const override { return notes_; }
  DataForm form() const override;

 private:
  std::string label_;
  TimeSeriesOptions options_;
  std::shared_ptr<const SeriesRows> rows_;  // of the whole file, scaled
  DataNotes notes_;
  std::vector<int64_t> starts_;  // rows of the first targets
};

// The last `window` rows of a file, scaled: [window, columns] f32, from which the values after the file's end are predicted; and
// how its gaps were filled, as text. Throws as TimeSeriesDataset, and DataError for a file that has fewer rows, or a gap among
// them.
struct LastWindow {
  Tensor input;
  std::string note{};
};
LastWindow read_last_window(const std::filesystem::path& path, const TimeSeriesOptions& training);

// Of a form's series: the places of the targets among the columns, and of inputs [N, window, columns] the prediction of no change,
// [N, horizon * targets].
std::vector<int64_t> places_of_targets(const TimeSeriesOptions& options);
Tensor last_values(const Tensor& input, const TimeSeriesOptions& options);

}  // namespace halfstep
