// SPDX-License-Identifier: Apache-2.0
// The rows of a series as a file has them, with what is missing filled in or marked. Not a public header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/data/sets/dataset.h"
#include "framework/data/tables/time_series.h"

namespace halfstep {

inline constexpr const char* kTimeSeries = "TimeSeries";  // where errors come from

struct SeriesRows {
  size_t columns = 0;
  std::vector<double> values{};  // row after row
  // The same with each missing value as the last one before it, whatever `missing` says; empty: as `values`.
  std::vector<double> last{};
  std::vector<uint8_t> filled{};           // of each value: is it none of the file's? Empty: none is
  std::vector<uint8_t> breaks{};           // of each row: are rows lacking between the one before and it?
  std::vector<int64_t> lines{};            // of each row, in the file; of a filled one, that of the next
  std::string filled_text{}, gaps_text{};  // what was done, and where rows are lacking
  DataNotes notes{};                       // how the file was read

  size_t rows() const { return columns > 0 ? values.size() / columns : 0; }
  bool is_filled(size_t row, size_t column) const { return !filled.empty() && filled[row * columns + column] != 0; }
  // Writes the values of rows [from, to) as a window that ends there sees them: a value that is missing up to the end is the last
  // one before it. Returns the place behind them.
  float* copy_window(size_t from, size_t to, float* out) const;
};

// Sets the names, the format and the step of `o` to those that were found.
SeriesRows read_series(const std::filesystem::path& path, TimeSeriesOptions& o);

}  // namespace halfstep
