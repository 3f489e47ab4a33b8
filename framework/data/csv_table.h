// SPDX-License-Identifier: Apache-2.0
// The cells of a delimited text file, as text (RFC 4180).
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/csv_cells.h"

namespace halfstep {

// Every row has the same number of cells. Lines end with LF, CRLF or, in a file that has no LF, CR. Quotes are undone, spaces
// around unquoted cells removed, empty lines at the end left out. A delimiter of 0 is found in the first line: the only one of
// comma, semicolon, tab and | in it, or the only one that occurs as often in the second line; not the decimal or thousands
// separator. Throws IoError when the file cannot be read; DataError for a row of another length, an open quote, an ambiguous
// delimiter, text in UTF-16, or no row at all.
class CsvTable {
 public:
  CsvTable(const std::filesystem::path& path, const CsvFormat& format);
  CsvTable(const CsvTable&) = delete;

  size_t rows() const { return lines_.size(); }
  size_t columns() const { return columns_; }
  char delimiter() const { return delimiter_; }
  std::string_view cell(size_t row, size_t column) const { return cells_[row * columns_ + column]; }
  // "path:line:field", both from 1.
  std::string where(size_t row, size_t column) const;

 private:
  std::string path_, text_;
  std::deque<std::string> unquoted_;     // cells that had doubled quotes; a deque keeps them in place
  std::vector<std::string_view> cells_;  // into text_ and unquoted_
  std::vector<int64_t> lines_;           // where each row begins
  size_t columns_ = 0;
  char delimiter_ = 0;

  void find_delimiter(const CsvFormat& format);
  void parse();
  std::string_view quoted(size_t& at, int64_t& line, size_t field);
};

}  // namespace halfstep
