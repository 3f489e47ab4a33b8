// SPDX-License-Identifier: Apache-2.0
// Numbers in a table with other signs than those of programs. Not a public header.
#pragma once

#include <string>
#include <string_view>

#include "framework/data/tables/csv_cells.h"

namespace halfstep {

// A cell without signs that other programs do not write.
struct CsvPlainCell {
  std::string text{};    // in the digits and signs of ASCII; kGroup between groups of three digits
  CsvNumberForm form{};  // what was replaced; nothing: `text` is empty, and the cell is plain
};
inline constexpr char kCsvGroup = '\x01';

// Replaces what has one meaning alone: minus signs and digits of other alphabets, and no-break blanks and apostrophes between
// groups of digits, where the format has no other separator of thousands.
CsvPlainCell with_plain_signs(std::string_view cell, const CsvFormat& format);

// Takes off the marks of CsvFormat::accounting. negative: they say so. Returns false for a cell without them, or with two minus
// signs.
bool take_accounting_marks(std::string_view& cell, bool& negative, CsvNumberForm& form);

}  // namespace halfstep
