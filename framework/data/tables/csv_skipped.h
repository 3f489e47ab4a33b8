// SPDX-License-Identifier: Apache-2.0
// Judges lines of a table to be predicted that the training data's `skip_rows` would leave out. Not a public header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "framework/data/tables/csv.h"

namespace halfstep {

// Returns those of the lines (numbered from 1) that surely are no records: a title above the header, a line of another length
// without numbers, a total, and units: a text where each record has a number or a date, and no number, date or known category at
// all. columns: those that the model reads as numbers, dates or categories. header: empty if unknown. Returns all of the lines of a
// file that cannot be read without them.
std::vector<int64_t> lines_without_record(const std::filesystem::path& path, const CsvFormat& format, std::optional<bool> header,
                                          const std::vector<int64_t>& lines, const std::vector<CsvEncoding::Column>& columns);

}  // namespace halfstep
