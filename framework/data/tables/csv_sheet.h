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
  // header: is the first row one? Empty: see find_header of csv_header.h. Rows that repeat it are left out. Throws as CsvTable, and
  // DataError for a header without rows, or with a row of units below it. where: the data set, for messages. each_row_alone: a row
  // of units is the caller's affair. named: columns that the user names; where the cells do not say it, a first row with all of
  // them is the header.
  CsvSheet(const char* where, const std::filesystem::path& path, const CsvFormat& format, std::optional<bool> header,
           bool each_row_alone = false, const std::vector<std::string>& named = {});

  size_t rows() const { return rows_.empty() ? table_->rows() - (has_header_ ? 1 : 0) : rows_.size(); }
  bool has_header() const { return has_header_; }
  const DataNotes& notes() const { return notes_; }                 // how the file was read, where that is not plain
  const CsvFormat& format() const { return format_; }               // with the delimiter that was found
  const std::vector<std::string>& names() const { return names_; }  // of columns; their numbers where there is no header
  std::string_view cell(size_t row, size_t column) const { return table_->cell(row_of(row), column); }
  int64_t line(size_t row) const { return table_->line(row_of(row)); }  // of the file, from 1
  // The cell with the blanks around it that quotes kept, or that are none of ASCII's.
  std::string_view spelled(size_t row, size_t column) const { return table_->spelled(row_of(row), column); }
  // Rows of a table without a header that are the same as its first, in order.
  const std::vector<size_t>& same_as_first() const { return table_->repeats(); }
  // Leaves the other rows out.
  void keep(const std::vector<size_t>& rows);
  // Shows one row alone, of those that the file has.
  void show_row(size_t row) { rows_ = {first_rows_.empty() ? (has_header_ ? 1 : 0) + row : first_rows_[row]}; }
  // By name or 0-based index, negative from the end. Throws ConfigError for one that is not there.
  size_t find(const std::string& column) const;
  bool is_number(size_t row, size_t column) const;
  // The number in a cell, which is finite; NaN where only its text says what it is, see CsvTable::number.
  double plain_number(size_t row, size_t column) const { return table_->number(row_of(row), column); }
  // Throws DataError for a cell that is empty, no number, or not finite in float32, and for a currency sign after another one in
  // the column.
  double number(size_t row, size_t column) const;
  // How the numbers so far were written, where that is not plain: "3 numbers with parentheses for negative ones, such as \"(5)\",
  // which is -5".
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
  bool has_header_;
  std::vector<size_t> rows_;  // of the table, that are there; empty: all below the header
  std::vector<size_t> first_rows_;  // the same, before any was left out by others

  void leave_out_repeats();
  size_t row_of(size_t row) const { return rows_.empty() ? row + (has_header_ ? 1 : 0) : rows_[row]; }

  std::vector<std::string> names_;
  struct Written {
    int64_t count = 0;
    std::string first{};
  };
  mutable std::map<std::string, Written> written_;      // numbers that are not plain, by their form
  mutable std::map<size_t, std::string> currencies_{};  // of columns
};

// Mean and deviation of a column's values; the deviation of a constant is 1.
TargetScale scale_of_column(std::span<const double> values);

}  // namespace halfstep
