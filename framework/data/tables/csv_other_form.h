// SPDX-License-Identifier: Apache-2.0
// Finds rows to be predicted whose numbers or dates probably are in another form than the training data's. Not a public header.
#pragma once

#include <string>
#include <vector>

#include "framework/data/tables/csv.h"
#include "framework/data/tables/csv_sheet.h"

namespace halfstep {

// Rows that must not be read, and what is uncertain about others.
struct CsvOtherForm {
  std::vector<std::string> faults{};  // for every row, "": none; empty: no row has one
  std::string warning{};
};

// Compares all cells of numbers, and all of dates, in these columns, which are those of the encoding. A cell that is one with
// another `decimal`, `thousands` or `date_order` alone shows that the file may have that form: then cells that have another meaning
// in it have a fault, unless their column also has cells that are none in it. Such a column gets a warning.
CsvOtherForm find_other_form(const CsvSheet& sheet, const std::vector<size_t>& columns, const CsvOptions& options);

}  // namespace halfstep
