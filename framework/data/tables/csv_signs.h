// SPDX-License-Identifier: Apache-2.0
// Reads numbers with signs that programs do not use. Not a public header.
#pragma once

#include <string>
#include <string_view>

#include "framework/data/tables/csv_cells.h"

namespace halfstep {

// A cell after unusual signs were replaced.
struct CsvPlainCell {
  std::string text{};    // in ASCII digits and signs, with kCsvGroup between groups of three digits
  CsvNumberForm form{};  // what was replaced; nothing: `text` is empty, because the cell has only usual signs
};
inline constexpr char kCsvGroup = '\x01';

// Replaces unambiguous signs: minus signs and digits of other alphabets, and no-break blanks and apostrophes between groups of
// digits if the format has no other separator of thousands.
CsvPlainCell with_plain_signs(std::string_view cell, const CsvFormat& format);

// Removes the marks of CsvFormat::accounting. negative: whether they mean a negative number. Returns false for a cell without them,
// or with two minus signs.
bool take_accounting_marks(std::string_view& cell, bool& negative, CsvNumberForm& form);

}  // namespace halfstep
