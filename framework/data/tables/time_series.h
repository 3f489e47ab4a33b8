// SPDX-License-Identifier: Apache-2.0
// Windows over a series of numbers: the values of a window are inputs, the values after it are to be predicted.
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

// The usual distance between the rows of a series.
struct SeriesStep {
  // month: calendar months of any length. business_day: the days of the week that occur, if some never do.
  enum class Unit : uint8_t { number, day, business_day, month };
  Unit unit = Unit::number;
  double size = 0;    // in that unit; 0: unknown
  uint8_t week = 31;  // for business_day: a bit for each day of the week, Monday is the lowest
  bool operator==(const SeriesStep&) const = default;
};

// How to treat missing values: cells that are empty or hold one of TimeSeriesOptions::missing_words, and rows that the times lack.
// refuse: such a cell is an error. drop: drops its row. With both, no window crosses a gap. last: repeats the last value before
// it. interpolate: takes the straight line between its neighbours; but because a window sees no value beyond its end, a value
// whose later neighbour is there repeats the last one, as at the end of a file. Filled values are inputs only: windows whose next
// values are missing are dropped.
enum class SeriesMissing : uint8_t { refuse, drop, last, interpolate };
HALFSTEP_OPTION_NAMES(SeriesMissing, "refuse", "drop", "last", "interpolate");

struct TimeSeriesOptions {
  std::vector<std::string> columns{};  // inputs, by name or index; empty: the last
  bool all_columns = false;            // replaces `columns`: all columns of numbers except those of `time`
  std::vector<std::string> target{};   // the columns to predict, in this order; empty: all
  // A column of dates or numbers that must grow from row to row; or the columns of the year, the month and so on. Empty: none.
  std::vector<std::string> time{};
  int64_t window = 1;   // rows in the input
  int64_t horizon = 1;  // rows after them to predict
  int64_t stride = 1;   // distance between windows
  double begin = 0,
         end = 1;           // the part of the targets: rows [floor(begin n), floor(end n)). Windows may begin before it
  bool standardize = true;  // (value - mean) / std for each column, for inputs and targets
  std::vector<ColumnScale> scaling{};  // scale of each column, e.g. the training part's, instead of this part's own
  SeriesMissing missing = SeriesMissing::refuse;
  std::vector<std::string> missing_words{};
  std::optional<SeriesStep> step{};  // usual step of the training data, which defines the gaps of another file
  std::optional<bool> header{};
  CsvFormat format{};
  static const OptionList<TimeSeriesOptions>& list();
};

// Inputs f32 [window, columns], targets f32 [horizon * targets] (those of the first row, then of the second), in order of time.
// target_scale() is the scaling from the columns' values to targets, so that errors can be reported in their units. Throws like
// CsvDataset; also DataError for times that do not grow, and for a part without a window.
class TimeSeriesDataset : public Dataset {
 public:
  explicit TimeSeriesDataset(const std::filesystem::path& path, const TimeSeriesOptions& options = {});

  int64_t size() const override { return int64_t(starts_.size()); }
  Shape input_shape() const override;
  Shape target_shape() const override;
  int64_t classes() const override { return 0; }
  ColumnScale target_scale() const override;
  const std::vector<ColumnScale>& scaling() const { return options_.scaling; }  // for each column
  const TimeSeriesOptions& options() const { return options_; }  // with the names, step and so on that were found
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

// Returns the last `window` rows of a file, scaled: [window, columns] f32, to predict the values after the file's end; and how its
// gaps were filled, as text. Throws like TimeSeriesDataset, and DataError for a file with fewer rows, or a gap among them.
struct LastWindow {
  Tensor input;
  std::string note{};
};
LastWindow read_last_window(const std::filesystem::path& path, const TimeSeriesOptions& training);

// Return the indices of the targets among the columns; and for inputs [N, window, columns] the prediction of no change, [N,
// horizon * targets].
std::vector<int64_t> places_of_targets(const TimeSeriesOptions& options);
Tensor last_values(const Tensor& input, const TimeSeriesOptions& options);

}  // namespace halfstep
