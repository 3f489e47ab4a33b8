// SPDX-License-Identifier: Apache-2.0
// Computes the inputs of a CsvDataset from the columns of its table. Not a public header.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/tables/csv.h"
#include "framework/data/tables/csv_sheet.h"
#include "framework/data/tables/csv_zones.h"

namespace halfstep {

// Returns whether a cell is empty, or one of CsvOptions::missing_words.
inline bool is_missing_cell(std::string_view cell, const std::vector<std::string>& words) {
  return cell.empty() || std::find(words.begin(), words.end(), cell) != words.end();
}

// Returns "; column c: "NA" is one of its texts; "missing_words": ["NA"] reads it as a missing value" for texts that usually mean
// one; "" if there are none.
std::string words_read_as_texts(const std::string& where, const std::vector<std::string>& texts, const CsvFormat& format);

// Returns whether no word is a number, so that numbers are never missing.
inline bool are_texts(const std::vector<std::string>& words, const CsvFormat& format) {
  double ignored = 0;
  return std::none_of(words.begin(), words.end(), [&](const std::string& w) { return parse_number(w, format, ignored); });
}

// The values of an input, for every row of a sheet; NaN: missing. Small integers, such as those of categories, take one byte each,
// and numbers that the sheet holds are not copied.
class CsvValues {
 public:
  CsvValues() = default;
  // Refers to a column of numbers, whose other cells are all missing. The sheet must live as long.
  CsvValues(const CsvSheet& sheet, size_t column) : sheet_(&sheet), column_(column) {}
  template <class It>
  CsvValues(It begin, It end) {
    for (; begin != end; ++begin) push_back(double(*begin));
  }
  void push_back(double value);
  // Replaces missing values.
  void fill(double value) { fill_ = value; }
  double operator[](size_t row) const {
    double value = 0;
    if (sheet_)
      value = sheet_->plain_number(row, column_);
    else if (wide_.empty())
      value = small_[row] == kNone ? std::numeric_limits<double>::quiet_NaN() : small_[row];
    else
      value = wide_[row];
    return std::isnan(value) ? fill_ : value;
  }

 private:
  static constexpr uint8_t kNone = 255;
  const CsvSheet* sheet_ = nullptr;
  size_t column_ = 0;
  std::vector<uint8_t> small_;  // the values, while all are small integers or missing
  std::vector<double> wide_;    // else
  double fill_ = std::numeric_limits<double>::quiet_NaN();
};

// One input of the data set.
struct CsvFeature {
  std::string name;
  CsvValues values;
  bool categorical = false;
};

// Returns for each name the column of `from` with this name in `all`, the k-th one for its k-th occurrence; nothing if none is
// left. Names may be spelled differently (labels.h).
std::vector<std::optional<size_t>> pair_by_name(const std::vector<std::string>& names, const std::vector<std::string>& all,
                                                const std::vector<size_t>& from);

// Reads columns of a sheet as inputs, and collects notes on how they were read.
class CsvColumns {
 public:
  CsvColumns(const CsvSheet& sheet, const CsvOptions& options)
      : sheet_(sheet), options_(options), words_are_texts_(are_texts(options.missing_words, sheet.format())) {}

  // Returns whether the cell is empty, or one of missing_words.
  bool is_missing(size_t row, size_t column) const;
  // Returns the columns of the features, in the training data's order if that is known.
  std::vector<size_t> choose(size_t target, const std::string& path) const;
  // Appends the inputs of a column. given: the training data's encoding of the column; null: learn it from this file.
  CsvEncoding::Column append(size_t column, const CsvEncoding::Column* given, std::vector<CsvFeature>& out);
  // Returns the texts of a column, "" for missing ones. Throws like append().
  std::vector<std::string_view> texts(size_t column);
  // Returns whether drop_row drops the row because of this cell: it is missing, or unknown if that counts as missing.
  bool is_left_out(size_t row, size_t column, const CsvEncoding::Column* given) const;
  // Returns how the columns were read so far.
  DataNotes notes() const;
  // Return how many values append() found missing, and how many the training data lacks, which may count as missing.
  int64_t missing() const { return missing_; }
  int64_t unknown() const { return unknown_; }
  const std::string& unknown_example() const { return unknown_example_; }  // "\"peat\" in column soil"
  const CsvZoneCheck& zones() const { return zones_; }                     // of given columns

 private:
  // Returns whether a value is missing, and counts it. Throws DataError if that is refused; kind: what the cell must be.
  bool count_missing(size_t row, size_t column, const char* kind);
  bool has_numbers(size_t column) const;
  void append_date(size_t column, CsvEncoding::Column& encoding, bool given, std::vector<CsvFeature>& out);
  void append_texts(size_t column, CsvEncoding::Column& encoding, bool given, std::vector<CsvFeature>& out);
  std::vector<int64_t> learn_categories(size_t column, CsvEncoding::Column& encoding);
  int64_t unknown_category(size_t row, size_t column, const CsvEncoding::Column& encoding);
  std::string probable_meaning(size_t column) const;
  std::string probable_quantity(size_t column) const;

  const CsvSheet& sheet_;
  const CsvOptions& options_;
  bool words_are_texts_;  // whether no word for a missing value is a number
  int64_t number_columns_ = 0, missing_ = 0, unknown_ = 0;
  std::string unknown_example_, spelling_notes_;
  CsvZoneCheck zones_;
  struct ConvertedColumn {
    std::string column;
    size_t inputs;
    bool date;
  };
  std::vector<ConvertedColumn> converted_columns_;
  std::vector<std::string> warnings_;
};

// Returns the index of a cell's text in the training data's list. Throws DataError if it is missing there.
int64_t find_known(const CsvSheet& sheet, size_t row, size_t column, std::string_view text, const std::vector<std::string>& names,
                   const char* what);

// Replaces missing values. learnt: each input's replacement, from the training data; empty: computed here from these rows.
void fill_missing(std::vector<CsvFeature>& features, const std::vector<int64_t>& rows, const CsvOptions& o, const std::string& path,
                  std::vector<double>& learnt);

}  // namespace halfstep
