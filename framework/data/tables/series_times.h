// SPDX-License-Identifier: Apache-2.0
// The times of a series: the usual distance of its rows, and where rows are missing. Not a public header.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/tables/csv_sheet.h"
#include "framework/data/tables/time_series.h"

namespace halfstep {

struct SeriesGap {
  size_t row;       // the first row after the gap
  int64_t lacking;  // rows that the usual step would have in the gap
};

struct SeriesTimes {
  SeriesStep step{};
  std::vector<SeriesGap> gaps{};
  std::string gaps_text{};       // "day: 1 step of 31 days where 58 have 1 (line 32)"; "": no gap
  std::string irregular_text{};  // why no step counts as a gap although many are longer; "": not so
  bool on_grid = true;           // whether all longer steps are multiples of the usual one
  std::string read_text{};       // how the times were read, if that was a choice
  std::string doubt_text{};      // the same, if another choice would be as good
};

// Reads the times of all rows from these columns: one of dates or numbers, or several with the year, the month and so on. `known`:
// the usual step of the training data, which defines gaps. Throws DataError for a cell that is not a time and for times that do
// not grow, with lines and remedy; ConfigError for several columns whose names do not identify them.
SeriesTimes read_times(const CsvSheet& sheet, const std::vector<size_t>& columns, const std::optional<SeriesStep>& known = {});

// For dates that can be read both day first and month first: returns the order in which they grow and have equal steps, if the
// other one is worse.
std::optional<CsvDateOrder> order_by_steps(const CsvSheet& sheet, size_t column);

// Returns how many of the column's numbers make a day if they are Unix times, in seconds, milliseconds, micro- or nanoseconds:
// between 1973 and 2100, with nearly all steps equal, but not 1. 0: they are not.
double unix_times_of_day(const CsvSheet& sheet, size_t column);

// Returns whether the column's numbers are dates in digits, such as 202403 and 2024031814, that have more equal steps as dates.
bool are_dates_in_digits(const CsvSheet& sheet, size_t column);

// Returns "1 day", "3 months", "15 minutes" or "10".
std::string text_of(const SeriesStep& step);

// Returns the part of a time in a column of this name: "year", "quarter", "month", "day", "hour", "minute"; "": none.
std::string part_of_time(const std::string& name);

}  // namespace halfstep
