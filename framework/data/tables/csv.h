// SPDX-License-Identifier: Apache-2.0
// Tables in comma-separated files (RFC 4180; quoted fields, any end of lines, empty lines at the end).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/sets/split.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/data/tables/csv_cells.h"
#include "framework/data/tokens/token_rows.h"

namespace halfstep {

// Statistics of the training data, so that other parts and files are read in the same way; empty ones are computed again.
struct CsvEncoding {
  struct Column {
    std::string name;                       // or its index, without a header
    std::vector<std::string> categories{};  // sorted; empty: numbers, or a date
    std::vector<std::string> date{};        // "days", or parts: "year", "month", "day", "weekday", "hour"; empty: not a date
    // Of a date: the different zones of its times, in hours east of UTC; nothing: unknown, and parts are those of UTC.
    std::optional<std::vector<double>> zones{};
    bool operator==(const Column&) const = default;
  };
  std::vector<double> mean{}, std{};  // for each input; the std of a constant column is 1
  std::vector<double> fill{};         // replacements of missing values, for each input
  std::vector<Column> columns{};      // of features
  std::optional<TokenRows> tokens{};  // of texts
  std::string target{};               // the column's name
  bool header = false;                // whether columns are named by a header
  int64_t width = 0;                  // number of columns of the file, features or not; 0: unknown
  std::vector<std::string> classes{};
  std::vector<double> low{}, high{};  // range of each input before scaling; empty: unknown
  bool operator==(const CsvEncoding&) const = default;
};

// What to do with cells of features that are empty or hold one of CsvOptions::missing_words. mean, median: replace them by that of
// the column, over the kept part. constant: replace them by CsvOptions::fill. In a categorical column, the last three add a
// category "".
enum class CsvMissing : uint8_t { refuse, drop_row, mean, median, constant };
HALFSTEP_OPTION_NAMES(CsvMissing, "refuse", "drop_row", "mean", "median", "constant");

template <class O>
Option<O> header_of() {
  return option("header", &O::header, "is the first row a header").or_word("auto");
}
template <class O>
Option<O> missing_words_of() {
  return option("missing_words", &O::missing_words, "words for a missing value besides an empty cell").of("a word");
}
// Describes an option of columns, by name or index.
template <class O>
Option<O> columns_of(const char* name, std::vector<std::string> O::*member, const char* doc) {
  return option(name, member, doc).of("column").or_index();
}

struct CsvOptions {
  std::optional<bool> header{};  // whether the first row is one; empty: a row without numbers, above a row with one, is
  CsvFormat format{};
  std::string target{};                 // column by name or 0-based index (negative: from the end); "": the last
  bool classification = true;           // classes are the distinct targets, in order; else regression, target [1]
  std::vector<std::string> features{};  // columns by name or index; empty: all but the target and `exclude`
  std::vector<std::string> exclude{};   // columns that are not features, if `features` is empty
  std::vector<std::string> dates{};     // columns of dates
  CsvDateOrder date_order = CsvDateOrder::ymd;
  bool date_parts = false;   // year, month, day, weekday and, if a cell has a time, hour; else days since 1970-01-01
  bool standardize = false;  // (x - mean) / std
  CsvMissing missing = CsvMissing::refuse;
  std::vector<std::string> missing_words{};  // "?", "NA": besides empty cells
  double fill = 0;                           // for CsvMissing::constant
  bool one_hot = true;  // a categorical column becomes one 0/1 input per distinct value; else one input, the number of the value
  std::optional<CsvEncoding> encoding{};  // the training data's
  SplitOptions part{};                    // the rows that are kept
  bool standardize_target = false;            // for regression: (y - mean) / std
  std::optional<ColumnScale> target_scale{};  // used instead of this part's own: the training data's
  // How to read texts of categorical columns that the training data lacks: "refuse" them, as "missing", or as this category.
  std::string unknown = "refuse";
  // Reads the features as texts, which become one row of tokens. With CsvMissing::constant, a missing text has no tokens;
  // `unknown`, `dates`, `standardize`, and the mean and median of missing values do not apply.
  std::optional<TokenRowOptions> tokens{};
  // Of classes that are whole numbers: a negative one that losses ignore, whose rows are dropped; empty: it is a class.
  std::optional<int64_t> ignored = kIgnoredClass;
  static const OptionList<CsvOptions>& list();
};

// Rows as in their file.
struct CsvLines {
  std::vector<std::string> names{};               // of all columns
  size_t target = 0;                              // index of the column
  std::vector<std::vector<std::string>> cells{};  // a list of cells for each row
};

// Inputs [features] f32, or with CsvOptions::tokens i64 [length], with tokens learnt from the kept part. A column without any
// number is categorical: one 0/1 input per distinct value, sorted, named "column=value" and not standardized; without one_hot, one
// input named as the column. Classes and categories come from the whole file, so that all parts agree, or from
// CsvOptions::encoding, which then also sets the columns and their order: by name if both files have a header, else by index.
// Different spellings of one name or label are equal: see label_key of labels.h. Rows without a target are dropped. A column of
// CsvOptions::dates is one input, or one per part, named "column.year". With standardize_target, target_scale() is the scaling
// from the column's values to targets, so that metrics and predictions stay in the column's units. notes() lists how the columns
// were read. Warns of text columns that look like dates or numbers in another format, of labels that differ only in case, and of a
// first row that may be a header. Throws IoError if the file cannot be read; ConfigError for missing columns, for a feature that
// is given twice, and for one that is the target; and DataError "path:line:field: ..." for rows of another length and for cells
// that are missing, not finite, not numeric, not a date, or a class or category that the encoding lacks.
class CsvDataset : public TensorDataset<> {
 public:
  explicit CsvDataset(const std::filesystem::path& path, const CsvOptions& options = {});

  const std::vector<std::string>& feature_names() const { return feature_names_; }   // one per input
  const std::vector<std::string>& class_names() const { return encoding_.classes; }  // empty for regression
  // Returns the encoding of this part: mean and std are empty unless standardized, fill unless missing values are filled in.
  const CsvEncoding& encoding() const { return encoding_; }
  DataNotes notes() const override { return notes_; }
  ColumnScale target_scale() const override { return target_scale_; }
  DataForm form() const override;
  // Returns the line at which sample i begins in the file, from 1.
  int64_t line(int64_t i) const { return lines_.at(size_t(i)); }
  // Reads these lines of the file again. Also throws DataError if no row begins at one of them.
  CsvLines lines_of_file(const std::vector<int64_t>& lines) const;

 private:
  struct Parsed;
  explicit CsvDataset(Parsed parsed);
  static Parsed parse(const std::filesystem::path& path, const CsvOptions& options);
  std::filesystem::path path_;
  std::vector<int64_t> lines_;  // for each sample
  std::vector<std::string> feature_names_;
  CsvOptions options_;  // with the delimiter that was found
  CsvEncoding encoding_;
  ColumnScale target_scale_;
  DataNotes notes_;
};

// Rows of a table to be predicted.
struct CsvRows {
  std::vector<std::string> header{};              // the file's header; empty: none
  std::vector<std::vector<std::string>> cells{};  // for every row
  std::vector<std::string> faults{};              // for every row: why it cannot be read; "": it can
  std::vector<size_t> rows{};                     // readable rows
  Tensor input{};                                 // for those, [rows, inputs] f32, or i64 tokens
  // For those: the target, a number or the index of the class; NaN if missing. Empty: the file has no target column.
  std::vector<double> targets{};
  // Number of targets that are not numbers, or not classes of the training data, and the first one: "\"<=50K.\" in row 1". They
  // count as missing.
  int64_t unknown_answers = 0;
  std::string unknown_answer{};
  // Number of input values read by CsvOptions::unknown, and the first one: "\"peat\" in column soil".
  int64_t unknown_values = 0;
  std::string unknown_value{};
  // Number of input values far outside the training data's range, and the first one: "mass is 3e+06 in row 4, where the training
  // data has 2700 to 6300".
  int64_t far_values = 0;
  std::string far_value{};
  DataNotes notes{};     // anything unusual in how the file was read
  char delimiter = ',', decimal = '.';  // for a file of the same kind
};
// Reads rows to be predicted. training: how the training data was read, with its encoding. Columns are found by name, in any order
// and among others, if the training data had a header, and else by index; the target's may be missing. With CsvMissing::drop_row,
// a row with a missing value has a fault; so has one that may be in another form than the training data, as another row certainly
// is (csv_other_form.h). Without a header the file must have all columns of the training data, those without the target or the
// features alone; a warning says what is not certain. Throws IoError, and DataError for a file that is not a table or lacks a
// column.
CsvRows read_csv_rows(const std::filesystem::path& path, const CsvOptions& training);
// Returns the same for texts, one per row. Throws ValueError unless the training data's features were one column of texts.
CsvRows rows_of_texts(const std::vector<std::string>& texts, const CsvOptions& training);

}  // namespace halfstep
