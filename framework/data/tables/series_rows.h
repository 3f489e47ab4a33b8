// SPDX-License-Identifier: Apache-2.0
// The rows of a series as in a file, with missing values filled in or marked. Not a public header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/data/sets/dataset.h"
#include "framework/data/tables/time_series.h"

namespace halfstep {

inline constexpr const char* kTimeSeries = "TimeSeries";  // name for errors

struct SeriesRows {
  size_t columns = 0;
  std::vector<double> values{};  // row after row
  // The values with each missing one replaced by the last one before it, whatever `missing` says; empty: equal to `values`.
  std::vector<double> last{};
  std::vector<uint8_t> filled{};           // for each value: whether it is not from the file; empty: none
  std::vector<uint8_t> breaks{};           // for each row: whether rows are missing between the one before and it
  std::vector<int64_t> lines{};            // for each row, its line in the file; for a filled one, that of the next
  std::string filled_text{}, gaps_text{};  // what was filled in, and where rows are missing
  DataNotes notes{};                       // how the file was read

  size_t rows() const { return columns > 0 ? values.size() / columns : 0; }
  bool is_filled(size_t row, size_t column) const { return !filled.empty() && filled[row * columns + column] != 0; }
  // Writes the values of rows [from, to) as a window that ends there sees them: a value missing up to the end is the last one
  // before it. Returns the position behind them.
  float* copy_window(size_t from, size_t to, float* out) const;
};

// Reads the rows, and sets the names, the format and the step of `o` to those found.
SeriesRows read_series(const std::filesystem::path& path, TimeSeriesOptions& o);

}  // namespace halfstep
