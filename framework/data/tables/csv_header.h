// SPDX-License-Identifier: Apache-2.0
// Finds rows of a table that are not samples: a header, and rows that should not be there. Not a public header.
#pragma once

#include <optional>
#include <string>

#include "framework/data/tables/csv_table.h"

namespace halfstep {

struct CsvHeader {
  std::optional<bool> is_present{};  // empty: cannot be detected without numbers in the first rows
  std::string why{};                 // how a header with numbers was recognised
  std::string doubtful{};            // its first number, if the numbers look like names, but not clearly
};

// Finds out whether the first row is a header. It is one if it has no number and the row below has one or does not exist (numbers
// in another format and dates also count); if one of its texts is above nothing but numbers; if its numbers count the columns from
// 0, as pandas writes them; or if they rise evenly and are far from all others.
CsvHeader find_header(const CsvTable& table, const CsvFormat& format);

// Throws DataError for a row of units below the header.
void check_below_header(const char* where, const CsvTable& table, const CsvFormat& format, const std::string& path);

}  // namespace halfstep
