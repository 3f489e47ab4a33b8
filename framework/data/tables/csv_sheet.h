// SPDX-License-Identifier: Apache-2.0
// A table of a delimited file: its header, and its cells as numbers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/sets/dataset.h"
#include "framework/data/tables/csv_table.h"

namespace halfstep {

class CsvSheet {
 public:
  // header: whether the first row is one; empty: see find_header of csv_header.h. Rows that repeat it are dropped. Throws like
  // CsvTable, and DataError for a header without rows, or with a row of units below it. where: the data set, for messages.
  // each_row_alone: the caller handles rows of units. named: columns that the user names; if the cells do not decide, a first row
  // with all of them is the header.
  CsvSheet(const char* where, const std::filesystem::path& path, const CsvFormat& format, std::optional<bool> header,
           bool each_row_alone = false, const std::vector<std::string>& named = {});

  size_t rows() const { return rows_.empty() ? table_->rows() - (has_header_ ? 1 : 0) : rows_.size(); }
  bool has_header() const { return has_header_; }
  // Returns whether neither the format nor the first rows say if there is a header.
  bool is_header_unknown() const { return is_header_unknown_; }
  const DataNotes& notes() const { return notes_; }                 // anything unusual in how the file was read
  const CsvFormat& format() const { return format_; }               // with the delimiter that was found
  const std::vector<std::string>& names() const { return names_; }  // of columns; their indices without a header
  std::string_view cell(size_t row, size_t column) const { return table_->cell(row_of(row), column); }
  int64_t line(size_t row) const { return table_->line(row_of(row)); }  // of the file, from 1
  // Returns the cell with blanks that quotes kept, or that are not ASCII.
  std::string_view spelled(size_t row, size_t column) const { return table_->spelled(row_of(row), column); }
  // Returns the rows that equal the first one in a table without header, in order.
  const std::vector<size_t>& same_as_first() const { return table_->repeats(); }
  // Keeps only these rows.
  void keep(const std::vector<size_t>& rows);
  // Makes row 0 the given one of the rows of the file, and the only one.
  void show_row(size_t row) { rows_ = {first_rows_.empty() ? (has_header_ ? 1 : 0) + row : first_rows_[row]}; }
  // Finds a column by name or index, negative from the end. Throws ConfigError for a missing one.
  size_t find(const std::string& column) const;
  bool is_number(size_t row, size_t column) const;
  // Returns the number in a cell, which is finite; NaN if the text must be parsed, see CsvTable::number.
  double plain_number(size_t row, size_t column) const { return table_->number(row_of(row), column); }
  // Returns the number in a cell. Throws DataError for a cell that is empty, not a number, or not finite in float32, and for a
  // second currency in the column.
  double number(size_t row, size_t column) const;
  // Describes unusual forms of the numbers so far: "3 numbers with parentheses for negative ones, such as \"(5)\", which is -5".
  std::string number_forms() const;

  template <class... Parts>
  [[noreturn]] void fail_at(size_t row, size_t column, const Parts&... parts) const {
    fail<DataError>(where_, table_->where(row_of(row), column), ": column \"", names_[column], "\" ", parts...);
  }

 private:
  const char* where_;
  std::string path_;
  std::shared_ptr<const CsvTable> table_;
  CsvFormat format_;
  DataNotes notes_;
  bool has_header_, is_header_unknown_;
  std::vector<size_t> rows_;        // kept rows of the table; empty: all below the header
  std::vector<size_t> first_rows_;  // rows_ before the first call of keep() or show_row()

  void leave_out_repeats();
  size_t row_of(size_t row) const { return rows_.empty() ? row + (has_header_ ? 1 : 0) : rows_[row]; }

  std::vector<std::string> names_;
  struct UnusualNumbers {
    int64_t count = 0;
    std::string first{};
  };
  mutable std::map<std::string, UnusualNumbers> unusual_numbers_;  // unusual numbers, by their form
  mutable std::map<size_t, std::string> currencies_{};             // for each column
};

// Returns the mean and deviation of a column's values; the deviation of a constant is 1.
ColumnScale scale_of_column(std::span<const double> values);

}  // namespace halfstep
