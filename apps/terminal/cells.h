// SPDX-License-Identifier: Apache-2.0
// Tables for a terminal, a file, or a pipe.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

namespace halfstep::app {

using Cells = std::vector<std::vector<std::string>>;

struct CellsFit {
  size_t width = 0;                    // columns of the terminal; 0: no limit, and only `right` applies
  std::vector<size_t> left_out = {};   // columns that may be omitted, in this order; a line lists those that are
  std::vector<size_t> shortened = {};  // columns whose texts may end in "..."
  std::vector<size_t> right = {};      // columns that are aligned at the right: numbers
};

// Prints the rows of a table: all texts of a column get the same width, except in the last one. The first row is the head. A table
// that does not fit is printed in parts, each with the first column.
void print_cells(std::ostream& out, const Cells& rows, const CellsFit& fit = {});

}  // namespace halfstep::app
