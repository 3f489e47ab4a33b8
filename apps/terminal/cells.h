// SPDX-License-Identifier: Apache-2.0
// Tables in a terminal, in a file, or in a pipe.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

namespace halfstep::app {

using Cells = std::vector<std::vector<std::string>>;

struct CellsFit {
  size_t width = 0;                    // columns of the terminal; 0: no limit, and nothing below is done
  std::vector<size_t> left_out = {};   // columns that may be missing, the first at first; a line says which are
  std::vector<size_t> shortened = {};  // columns whose texts may end in "..."
  std::vector<size_t> right = {};      // columns of numbers; these also without a limit
};

// Rows with columns of equal width but for the last. A table that does not fit is printed in parts, each with the first column.
void print_cells(std::ostream& out, const Cells& rows, const CellsFit& fit = {});

}  // namespace halfstep::app
