// SPDX-License-Identifier: Apache-2.0
// Analyses the columns of a table, for a first config (apps/start/init_config.h).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "apps/start/init_config.h"
#include "framework/data/tables/csv_sheet.h"

namespace halfstep::app {

// Kinds of columns. mixed: not only numbers, dates or texts; no column of a table may be mixed.
enum class ColumnKind : uint8_t { empty, number, date, text, mixed };

// Most distinct texts of a column of categories, as in framework/data/tables/csv_columns.cpp.
inline constexpr size_t kMostTexts = 64;

struct InitColumn {
  size_t index = 0;
  std::string name;
  ColumnKind kind = ColumnKind::empty;
  size_t rows = 0, numbers = 0, dates = 0, texts = 0;  // counts of cells; the rest is missing
  size_t empties = 0;                                  // missing cells without a word
  size_t distinct = 0;                                 // distinct cells that are not missing
  bool all_integers = true;                            // all numbers are integers
  bool counts_up = false;                              // each number is one more than the one before
  bool is_permutation = false;                         // the numbers are consecutive integers in another order
  bool grows = false;                                  // each number, or date, is above the one before
  std::set<std::string> words{};                       // words for a missing value
  std::vector<size_t> odd_rows{};                      // rows of the few cells of another kind than all others
  std::string example{};                               // its first text
  CsvHint hint{};                                      // form of its texts, if they are numbers in another form
  double letters = 0, words_of_cell = 0;               // averages over its texts; letters: bytes of UTF-8, with blanks

  size_t filled() const { return numbers + dates + texts; }
  bool has_gaps() const { return filled() < rows; }
  // Returns whether there are at least 5 texts, all distinct, or more than 20 distinct ones among less than twice as many texts.
  bool texts_differ() const;
  // Returns whether texts have more distinct values than categories may have.
  bool has_many_texts() const { return kind == ColumnKind::text && (texts_differ() || distinct > kMostTexts); }
  // Returns whether the texts are sentences rather than names: they differ and are long on average.
  bool is_free_text() const {
    constexpr double kLeastLetters = 30, kLeastWords = 4;
    return texts_differ() && (letters >= kLeastLetters || words_of_cell >= kLeastWords);
  }
  // Returns whether texts have few words for their length, as names and languages without blanks do.
  bool has_few_words() const { return words_of_cell < 2 || letters > 20 * words_of_cell; }
};

// The format of numbers and dates that explains most cells of a file, and the kinds of columns with it.
struct TableReading {
  CsvFormat format;
  CsvDateOrder order = CsvDateOrder::ymd;
  bool order_is_sure = true;  // false: all days and months are below 13
  std::string order_why{};    // evidence for the order in that case
  std::string thousands_example{};
  std::vector<InitColumn> columns;
};
// Finds the format, and analyses all columns with it.
TableReading read_columns(const CsvSheet& sheet);

// Chooses the columns of texts that replace all other inputs: the requested one, or long texts, if the table has few other columns.
// Throws ConfigError for a request that is not a column of texts.
std::vector<const InitColumn*> choose_texts(const CsvSheet& sheet, const std::vector<InitColumn>& all,
                                               const InitColumn& target, bool classes, const InitWishes& wishes);
// Adds the texts' part of the data, and the layers. others: columns that are not inputs.
void add_texts(InitParts& out, const CsvSheet& sheet, const std::vector<const InitColumn*>& texts, const std::string& others);

// Returns whether a name is that of an id: "patient_id", "userId".
bool is_named_as_id(const std::string& name);
// Returns whether init takes this for a missing value: "NA", "?".
bool is_word_for_missing(std::string_view cell);
// Returns "houses.csv:17:3", as errors of the table name a cell.
std::string cell_place(const CsvSheet& sheet, size_t row, size_t column);
// Returns a column's reference in a config: its name in quotes, or its number if the table has no header or the name is not unique.
std::string reference(const CsvSheet& sheet, const InitColumn& c);
// Returns how a sentence names a column: its name, or "column 3".
std::string phrase(const CsvSheet& sheet, const InitColumn& c);
// Returns why a column is not an input: "counts the rows"; "": it is one.
std::string reason_to_leave_out(const CsvSheet& sheet, const InitColumn& c);

}  // namespace halfstep::app
