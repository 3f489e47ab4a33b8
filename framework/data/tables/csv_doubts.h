// SPDX-License-Identifier: Apache-2.0
// Finds numbers of training data that probably mean something else: a missing value, or a date. Not a public header.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "framework/data/tables/csv_sheet.h"

namespace halfstep {

// Returns a warning of numbers such as -999 and 9999 that recur far from all others of their column, with the words that make them
// missing values: `words`, which already do, and theirs. rule: what else the config must say of missing values, `"missing":
// "median"`; may be empty. Returns "" if there are none.
std::string warn_of_missing_marks(const CsvSheet& sheet, const std::vector<size_t>& columns, const std::vector<std::string>& words,
                                  const std::string& rule);

// Returns a warning of these columns of numbers if they are dates such as 20240131, or months such as 202401; "" if none is. dates:
// columns that are already read as dates.
std::string warn_of_dates(const CsvSheet& sheet, const std::vector<size_t>& columns, const std::vector<std::string>& dates);

}  // namespace halfstep
