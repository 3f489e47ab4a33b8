// SPDX-License-Identifier: Apache-2.0
// The times of a series: how far apart its rows usually are, and where rows are lacking. Not a public header.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/tables/csv_sheet.h"
#include "framework/data/tables/time_series.h"

namespace halfstep {

struct SeriesGap {
  size_t row;       // the first one after it
  int64_t lacking;  // rows that the usual step would have between this and the row before
};

struct SeriesTimes {
  SeriesStep step{};
  std::vector<SeriesGap> gaps{};
  std::string gaps_text{};       // "day: 1 step of 31 days where 58 have 1 (line 32)"; "": no gap
  std::string irregular_text{};  // why no step counts as a gap, where many are longer; "": that is not so
  bool on_grid = true;           // are all longer steps multiples of the usual one?
  std::string read_text{};       // how the times were read, where that was a choice
  std::string doubt_text{};      // the same, where another choice would be as good
};

// Reads the times of all rows in these columns: one of dates or of numbers, or several with the year, the month and so on. `known`:
// the usual step of the training data, by which gaps are found. Throws DataError for a cell that is no time and for times that do
// not grow, with lines and remedy; ConfigError for several columns whose names do not say what they are.
SeriesTimes read_times(const CsvSheet& sheet, const std::vector<size_t>& columns, const std::optional<SeriesStep>& known = {});

// Of dates in a column that can be read day first and month first, the order in which they grow from row to row and are as far
// apart as in most rows, if the other one is not as good.
std::optional<CsvDateOrder> order_by_steps(const CsvSheet& sheet, size_t column);

// How many of the column's numbers make a day, if they are Unix times, in seconds, milliseconds, micro- or nanoseconds: between
// 1973 and 2100, nearly all steps the same, and not 1. 0: they are none.
double unix_times_of_day(const CsvSheet& sheet, size_t column);

// "1 day", "3 months", "15 minutes", "10".
std::string text_of(const SeriesStep& step);

// What a column of a time in several columns holds, by its name: "year", "quarter", "month", "day", "hour", "minute"; "": none.
std::string part_of_time(const std::string& name);

}  // namespace halfstep
