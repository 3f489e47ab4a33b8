// SPDX-License-Identifier: Apache-2.0
// Which rows of a table are no samples: a header, and rows that should not be there. Not a public header.
#pragma once

#include <optional>
#include <string>

#include "framework/data/tables/csv_table.h"

namespace halfstep {

struct CsvHeader {
  std::optional<bool> there{};  // empty: without numbers in the first rows it cannot be detected
  std::string why{};            // of one that has numbers in it: what it was known by
  bool doubtful = false;        // its numbers look like names, but not enough to be taken for them
};

// Is the first row a header? It is where it has no number and the row below has one, or no row follows (a number in another format
// and a date count, too); where one of its texts is above nothing but numbers; and where it has numbers that rise evenly,
// which lie far from all others.
CsvHeader find_header(const CsvTable& table, const CsvFormat& format);

// Throws DataError for a row of units below the header.
void check_below_header(const char* where, const CsvTable& table, const CsvFormat& format, const std::string& path);

}  // namespace halfstep
