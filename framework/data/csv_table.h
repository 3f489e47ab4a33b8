// SPDX-License-Identifier: Apache-2.0
// The cells of a delimited text file, as text (RFC 4180).
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/data/csv_cells.h"
#include "framework/data/dataset.h"

namespace halfstep {

// Every row has the same number of cells. Lines end with LF, CRLF or, in a file that has no LF, CR. Quotes are undone, blanks
// around cells removed, empty lines at the end left out. A first line "sep=;" says the delimiter. A delimiter of 0 is found in the
// first line: the only one of comma, semicolon, tab and | in it, or the only one that occurs as often in the second line; not the
// decimal or thousands separator. Where none of them occurs in the file, or only tabs beside runs of blanks, and blanks make the
// same number of cells of every line, it is kCsvBlanks. Throws as read_text_file; also DataError for a row of another length, an
// open quote, an ambiguous delimiter, cells that are not UTF-8 or hold a NUL, or no row at all.
class CsvTable {
 public:
  CsvTable(const std::filesystem::path& path, const CsvFormat& format);
  CsvTable(const CsvTable&) = delete;

  size_t rows() const { return lines_.size(); }
  size_t columns() const { return columns_; }
  char delimiter() const { return delimiter_; }
  std::string_view cell(size_t row, size_t column) const { return cells_[row * columns_ + column]; }
  // The cell with the blanks around it that quotes kept, or that are none of ASCII's.
  std::string_view spelled(size_t row, size_t column) const;
  // "path:line:field", both from 1.
  std::string where(size_t row, size_t column) const;
  int64_t line(size_t row) const { return lines_[row]; }
  // Rows that are the same as the first, each cell; at most some hundred.
  const std::vector<size_t>& repeats() const { return repeats_; }
  // How the file was read, where that is not plain.
  const DataNotes& notes() const { return notes_; }

 private:
  DataNotes notes_;
  std::string path_, text_;
  std::deque<std::string> unquoted_;                          // cells that had doubled quotes; a deque keeps them in place
  std::vector<std::string_view> cells_;                       // into text_ and unquoted_
  std::unordered_map<size_t, std::string_view> with_blanks_;  // by the index in cells_
  std::vector<int64_t> lines_;                                // where each row begins
  std::vector<size_t> repeats_;
  std::vector<int64_t> skipped_;
  size_t columns_ = 0, begin_ = 0;
  int64_t first_line_ = 1;
  char delimiter_ = 0;

  void read_separator(std::vector<std::string_view>& left_out);
  void skip_lines(size_t& at, int64_t& line, std::vector<std::string_view>* left_out = nullptr) const;
  void note_skipped(const std::vector<std::string_view>& left_out);
  void find_delimiter(const CsvFormat& format);
  bool are_blanks_delimiters(const CsvFormat& format, bool tabs) const;
  void parse(std::vector<std::string_view>& left_out);
  void end_row(size_t fields, int64_t line);
  void add(std::string_view cell);
  void check_cells() const;
  std::string_view quoted(size_t& at, int64_t& line, size_t field);
};

}  // namespace halfstep
