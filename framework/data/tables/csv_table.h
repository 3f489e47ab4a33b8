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

// Every row has the same number of cells. Lines end with LF, CRLF or, in a file that has no LF, CR. Quotes are undone, blanks
// around cells removed, empty lines at the end left out. A first line "sep=;" says the delimiter. A delimiter of 0 is found in the
// first line: the only one of comma, semicolon, tab and | in it, or the only one that occurs as often in the second line; not the
// decimal or thousands separator. Where none of them occurs in the file, or only tabs beside runs of blanks, and blanks make the
// same number of cells of every line, it is kCsvBlanks. Throws as read_text_file; also DataError for a row of another length, an
// open quote, an ambiguous delimiter, cells that are not UTF-8 or hold a NUL, or no row at all; and MemoryError for a table that is
// larger than the memory that is free.
//
// A large file is read in one pass over its pages, of which it keeps those around the row that it reads. A column with a number in
// its first rows is kept as numbers, of which most take 4 bytes; the text of such a cell is read from the file again when it is
// asked for. Of other columns the place of each cell is kept.
class CsvTable {
 public:
  CsvTable(const std::filesystem::path& path, const CsvFormat& format);
  CsvTable(const CsvTable&) = delete;
  // The same, as it was read before while Keep<const CsvTable> lives.
  static std::shared_ptr<const CsvTable> open(const std::filesystem::path& path, const CsvFormat& format);

  size_t rows() const { return begins_.size(); }
  size_t columns() const { return columns_; }
  char delimiter() const { return delimiter_; }
  std::string_view cell(size_t row, size_t column) const { return bare(spelled(row, column)); }
  // The cell with the blanks around it that quotes kept, or that are none of ASCII's.
  std::string_view spelled(size_t row, size_t column) const;
  // The cell as a number, which is finite; CsvNumbers::kNone for one that is none, and for some in columns of texts.
  double number(size_t row, size_t column) const {
    return number_of_[column] < 0 ? CsvNumbers::kNone : numbers_->at(row, size_t(number_of_[column]));
  }
  // "path:line:field", both from 1.
  std::string where(size_t row, size_t column) const;
  int64_t line(size_t row) const;
  // Rows that are the same as the first, each cell, in their order; at most 100,000.
  const std::vector<size_t>& repeats() const { return repeats_; }
  // How the file was read, where that is not plain.
  const DataNotes& notes() const { return notes_; }

 private:
  static constexpr size_t kMarked = 16;  // of so many cells of a row, the place of one is noted
  using Left = std::vector<std::string_view>;
  DataNotes notes_;
  std::string path_;
  CsvFormat format_;
  FileText file_;
  std::string_view text_;  // without empty lines at the end
  mutable PageWindow window_;
  std::vector<int32_t> number_of_;  // of each column: its place in numbers_; -1: it has texts
  std::optional<CsvNumbers> numbers_;
  std::vector<std::vector<std::string_view>> texts_;          // of each column of texts, into text_ and unquoted_
  mutable std::unordered_map<size_t, std::string> unquoted_;  // cells that had doubled quotes, by their places
  std::vector<size_t> begins_;                                // of rows
  std::vector<uint32_t> marks_;                               // where every 16th cell of a row begins, from the row's beginning
  std::vector<std::pair<size_t, int64_t>> jumps_;             // (row, line - row) where that differs from the row before
  std::vector<std::string> first_row_;
  std::vector<size_t> repeats_;
  std::vector<int64_t> skipped_;
  size_t columns_ = 0, begin_ = 0, safe_ = 0, plain_ = 0;
  int64_t first_line_ = 1;
  char delimiter_ = 0;

  static std::string_view bare(std::string_view cell);
  void read_separator(Left& left_out);
  void skip_lines(size_t& at, int64_t& line, Left* left_out = nullptr) const;
  void note_skipped(const Left& left_out);
  void find_delimiter(const CsvFormat& format);
  bool are_blanks_delimiters(const CsvFormat& format, bool tabs) const;
  size_t pass_blanks(size_t at) const;
  void look_at_first_rows();
  void parse(Left& left_out);
  std::string_view take(size_t& at, int64_t& line, size_t field, bool& more) const;
  bool take_number(size_t& at, size_t column, std::string_view& cell, bool& more);
  void add(size_t column, std::string_view cell);
  void end_row(size_t fields, int64_t line, std::string_view first);
  void check_cells(size_t fields_of_last) const;
  std::string_view quoted(size_t& at, int64_t& line, size_t field) const;
};

}  // namespace halfstep
