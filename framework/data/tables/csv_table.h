// SPDX-License-Identifier: Apache-2.0
// The cells of a delimited text file, as text (RFC 4180).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/data/sets/dataset.h"
#include "framework/data/tables/csv_cells.h"
#include "framework/data/tables/csv_numbers.h"
#include "framework/io/files/mapped_file.h"

namespace halfstep {

// Every row must have the same number of cells. Lines end with LF, CRLF or, in a file without LF, CR. Quotes are undone, blanks
// around cells and quotes removed, and empty lines dropped; within a table of one column they are empty cells. A first line "sep=;"
// sets the delimiter. Delimiter 0 is detected in the first line: the only one of comma, semicolon, tab and | in it, or the only one
// that occurs as often in the second line; not the decimal or thousands separator. If none of them occurs in the file, or only tabs
// among runs of blanks, and blanks split every line into the same number of cells, it is kCsvBlanks. Throws like read_text_file;
// also DataError for a row of another length, an open quote, an ambiguous delimiter, cells that are not UTF-8 or have a NUL, or no
// row at all; and MemoryError for a table larger than the free memory.
//
// Reads a large file in one pass over its pages, and keeps only those around the current row. A column with a number in its first
// rows is stored as numbers, most in 4 bytes; the text of such a cell is read from the file again when needed. For other columns,
// stores the position of each cell.
class CsvTable {
 public:
  CsvTable(const std::filesystem::path& path, const CsvFormat& format);
  CsvTable(const CsvTable&) = delete;
  // Returns the same, reused while a ReadCache<const CsvTable> lives.
  static std::shared_ptr<const CsvTable> open(const std::filesystem::path& path, const CsvFormat& format);

  size_t rows() const { return begins_.size(); }
  size_t columns() const { return columns_; }
  char delimiter() const { return delimiter_; }
  std::string_view cell(size_t row, size_t column) const { return bare(spelled(row, column)); }
  // Returns the cell with blanks that quotes kept, or that are not ASCII.
  std::string_view spelled(size_t row, size_t column) const;
  // Returns the cell as a finite number; CsvNumbers::kNone if it is not one, and for some cells in columns of texts.
  double number(size_t row, size_t column) const {
    return number_of_[column] < 0 ? CsvNumbers::kNone : numbers_->at(row, size_t(number_of_[column]));
  }
  // Returns "path:line:field", both from 1.
  std::string where(size_t row, size_t column) const;
  int64_t line(size_t row) const;
  // Returns the rows that equal the first one in each cell, in order; at most 100,000.
  const std::vector<size_t>& repeats() const { return repeats_; }
  // Returns anything unusual in how the file was read.
  const DataNotes& notes() const { return notes_; }

 private:
  static constexpr size_t kMarkStep = 16;  // cells of a row from one stored position to the next
  struct SkippedLines {
    std::vector<std::string_view> lines{};  // texts of those that skip_rows lists
    std::vector<int64_t> empty{};           // numbers of empty ones
  };
  // The last row and some after it: the fields and numbers of the last; how many rows there are, how many have as many fields, and
  // how many have numbers.
  struct RowsFrom {
    size_t fields = 0, numbers = 0, rows = 0, as_long = 0, with_numbers = 0;
  };
  DataNotes notes_;
  std::string path_;
  CsvFormat format_;
  FileText file_;
  std::string_view text_;  // without empty lines at the end
  mutable PageWindow window_;
  std::vector<int32_t> number_of_;  // for each column, its index in numbers_; -1: it has texts
  std::optional<CsvNumbers> numbers_;
  std::vector<std::vector<std::string_view>> texts_;          // for each column of texts, views of text_ and unquoted_
  mutable std::unordered_map<size_t, std::string> unquoted_;  // cells with doubled quotes, by position
  std::vector<size_t> begins_;                                // starts of rows
  std::vector<uint32_t> marks_;                               // start of every 16th cell of a row, relative to the row
  std::vector<std::pair<size_t, int64_t>> jumps_;             // (row, line - row), if that differs from the row before
  std::vector<std::string> first_row_;
  std::vector<size_t> repeats_;
  std::vector<int64_t> skipped_;
  size_t columns_ = 0;
  size_t begin_ = 0;          // of the first row in text_
  size_t last_line_end_ = 0;  // of the file, which may be behind text_
  int64_t first_line_ = 1;
  char delimiter_ = 0;

  static std::string_view bare(std::string_view cell);
  void read_separator(SkippedLines& skipped);
  bool is_empty_line(size_t at) const;
  void skip_lines(size_t& at, int64_t& line, bool empty, SkippedLines* skipped = nullptr) const;
  void note_skipped(const SkippedLines& skipped);
  void find_delimiter(const CsvFormat& format);
  bool are_blanks_delimiters(const CsvFormat& format, bool tabs) const;
  size_t skip_blanks(size_t at) const;
  size_t begin_of_cell(size_t at) const;
  RowsFrom rows_from_last() const;
  void find_columns();
  void parse(SkippedLines& skipped);
  std::string_view read_cell(size_t& at, int64_t& line, size_t field, bool& more) const;
  bool read_number(size_t& at, size_t column, std::string_view& cell, bool& more);
  void add(size_t column, std::string_view cell);
  std::string help_for_length(size_t fields) const;
  void end_row(size_t fields, int64_t line, std::string_view first);
  void check_cells(size_t fields_of_last) const;
  std::string_view read_quoted(size_t& at, int64_t& line, size_t field) const;
};

}  // namespace halfstep
