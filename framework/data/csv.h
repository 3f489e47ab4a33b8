// SPDX-License-Identifier: Apache-2.0
// Tables in comma-separated files (RFC 4180; quoted fields, any end of lines, empty lines at the end).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/csv_cells.h"
#include "framework/data/tensor_dataset.h"
#include "framework/data/token_rows.h"

namespace halfstep {

// Statistics of the training data, so that other parts and files are read in the same way; empty ones are computed again.
struct CsvEncoding {
  struct Column {
    std::string name;                       // or its index, where there is no header
    std::vector<std::string> categories{};  // sorted; empty: numbers, or a date
    std::vector<std::string> date{};        // "days", or parts: "year", "month", "day", "weekday", "hour"; empty: no date
    bool operator==(const Column&) const = default;
  };
  std::vector<double> mean{}, std{};  // of each input; the std of a constant column is 1
  std::vector<double> fill{};         // replaces the missing values of an input
  std::vector<Column> columns{};      // of features
  std::optional<TokenRows> tokens{};  // of texts
  std::string target{};               // the column's name
  bool header = false;                // are columns named by one?
  std::vector<std::string> classes{};
  std::vector<double> low{}, high{};  // of each input, before it was scaled; empty: not known
  bool operator==(const CsvEncoding&) const = default;
};

// What is done about cells of features that are empty or hold one of CsvOptions::missing_words. mean, median: that of the column in
// the part that is kept. constant: CsvOptions::fill. In a categorical column the last three make one more category, "".
enum class CsvMissing : uint8_t { refuse, drop_row, mean, median, constant };

struct CsvOptions {
  enum class Header : uint8_t { automatic, yes, no };
  Header header = Header::automatic;  // automatic: a first row without numbers above a row with one
  CsvFormat format{};
  std::string target{};                 // column by name or 0-based index (negative: from the end); "": the last
  bool classification = true;           // classes: the distinct targets, in order; else regression, target [1]
  std::vector<std::string> features{};  // columns by name or index; empty: all but the target and `exclude`
  std::vector<std::string> exclude{};   // columns that are no features, without `features`
  std::vector<std::string> dates{};     // columns of dates
  CsvDateOrder date_order = CsvDateOrder::ymd;
  bool date_parts = false;   // year, month, day, weekday and, where a cell has a time, hour; else days since 1970-01-01
  bool standardize = false;  // (x - mean) / std
  CsvMissing missing = CsvMissing::refuse;
  std::vector<std::string> missing_words{};  // "?", "NA": besides empty cells
  double fill = 0;                           // of CsvMissing::constant
  bool one_hot = true;  // a categorical column as one 0/1 input a distinct value; else one input, the value's number
  std::optional<CsvEncoding> encoding{};  // the training data's
  double begin = 0, end = 1;              // the part of a seeded split that is kept, see split_part
  uint64_t seed = 0;
  // In place of these three: the rows that are kept, of so many with these classes (none: regression), ascending.
  std::function<std::vector<int64_t>(int64_t rows, std::span<const int64_t> classes)> part{};
  bool standardize_target = false;            // of regression: (y - mean) / std
  std::optional<TargetScale> target_scale{};  // used instead of this part's own: the training data's
  // Texts of categorical columns that the training data does not have: "refuse" them, read them as "missing", or as this category.
  std::string unknown = "refuse";
  // The features are texts, which become one row of tokens. With CsvMissing::constant a missing one has none; `unknown`, `dates`,
  // `standardize`, and the mean and median of missing values are for other tables.
  std::optional<TokenRowOptions> tokens{};
  // Of classes that are whole numbers: rows with this negative one, which losses ignore, are left out; empty: they are a class.
  std::optional<int64_t> ignored = kIgnoredClass;
};

std::optional<bool> has_header(CsvOptions::Header header);  // empty: by its cells

// Rows as their file has them.
struct CsvLines {
  std::vector<std::string> names{};               // of all columns
  size_t target = 0;                              // the column's place
  std::vector<std::vector<std::string>> cells{};  // of each row, a cell for each column
};

// Inputs [features] f32, or with CsvOptions::tokens i64 [length], tokens that are learnt from the part that is kept. A column
// without any number is categorical: one 0/1 input a distinct value, sorted, named "column=value" and not standardized; without
// one_hot one input, named as the column. Classes and categories come from the whole file, so that all parts agree, or from
// CsvOptions::encoding, and so do then the columns and their order: by name where both files have a header, else by place.
// Spellings of one name or label are one: see label_key of labels.h. Rows without a target are left out. A column of
// CsvOptions::dates is one input, or one a part, named "column.year". With standardize_target, target_scale() is the scaling from
// the column's values to targets, so that metrics and predictions stay in the column's units. notes() lists how the columns were
// read. It warns of text columns that look like numbers in another format or dates, of labels that differ in case alone, and of a
// first row that may be a header. Throws IoError when the file cannot be read; ConfigError for columns it does not have, for a
// feature that is given twice and for one that is the target; and DataError "path:line:field: ..." for rows of another length and
// for cells that are missing, not finite, not numeric, no date, or a class or category that the encoding does not have.
class CsvDataset : public TensorDataset<> {
 public:
  explicit CsvDataset(const std::filesystem::path& path, const CsvOptions& options = {});

  const std::vector<std::string>& feature_names() const { return feature_names_; }   // one an input
  const std::vector<std::string>& class_names() const { return encoding_.classes; }  // empty for regression
  // What this part was read by: mean and std empty unless standardized, fill unless missing values are filled in.
  const CsvEncoding& encoding() const { return encoding_; }
  DataNotes notes() const override { return notes_; }
  TargetScale target_scale() const override { return target_scale_; }
  DataForm form() const override;
  // Where sample i begins in the file, from 1.
  int64_t line(int64_t i) const { return lines_.at(size_t(i)); }
  // Reads the file again. Throws also DataError if no row begins in one of these lines.
  CsvLines lines_of_file(const std::vector<int64_t>& lines) const;

 private:
  struct Parsed;
  explicit CsvDataset(Parsed parsed);
  static Parsed parse(const std::filesystem::path& path, const CsvOptions& options);
  std::filesystem::path path_;
  std::vector<int64_t> lines_;  // of each sample
  std::vector<std::string> feature_names_;
  CsvOptions options_;  // with the delimiter that was found
  CsvEncoding encoding_;
  TargetScale target_scale_;
  DataNotes notes_;
};

// Rows of a table that a model is to answer for.
struct CsvRows {
  std::vector<std::string> header{};              // the file's; empty: it has none
  std::vector<std::vector<std::string>> cells{};  // of every row
  std::vector<std::string> faults{};              // of every row: why it cannot be read; "": it can
  std::vector<size_t> rows{};                     // those that can be read
  Tensor input{};                                 // of those, [rows, inputs] f32, or i64 tokens
  // Of those: the target, a number or the number of the class; NaN where there is none. Empty: the file has no such column.
  std::vector<double> targets{};
  // Targets that are no number or no class of the training data, which count as none, and the first: "\"<=50K.\" in row 1".
  int64_t unknown_answers = 0;
  std::string unknown_answer{};
  // Values of inputs that CsvOptions::unknown read, and the first: "\"peat\" in column soil".
  int64_t unknown_values = 0;
  std::string unknown_value{};
  // Values of inputs far outside of the training data's, and the first: "mass is 3e+06 in row 4, where the training data has 2700
  // to 6300".
  int64_t far_values = 0;
  std::string far_value{};
  DataNotes notes{};     // how the file was read, where that is not plain
  char delimiter = ',';  // for a file of the same kind
};
// training: how the training data was read, with its encoding. Columns are found by name, in any order and beside others, if the
// training data had a header, and else by place; the target's may be missing. With CsvMissing::drop_row a row with a missing value
// has a fault. Throws IoError, and DataError for a file that is no table or lacks a column.
CsvRows read_csv_rows(const std::filesystem::path& path, const CsvOptions& training);
// The same for texts, each of which is a row. Throws ValueError unless the training data's features were one column of texts.
CsvRows rows_of_texts(const std::vector<std::string>& texts, const CsvOptions& training);

}  // namespace halfstep
