// SPDX-License-Identifier: Apache-2.0
// What the columns of a table are, for a first config of it (apps/start/init_config.h).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "apps/start/init_config.h"
#include "framework/data/tables/csv_sheet.h"

namespace halfstep::app {

// mixed: neither numbers nor dates nor texts alone, which no column of a table may be.
enum class ColumnKind : uint8_t { empty, number, date, text, mixed };

// Different texts that a column of categories may have, as in framework/data/tables/csv_columns.cpp.
inline constexpr size_t kMostTexts = 64;

struct InitColumn {
  size_t at = 0;
  std::string name;
  ColumnKind kind = ColumnKind::empty;
  size_t rows = 0, numbers = 0, dates = 0, texts = 0;  // of all cells; the rest is missing
  size_t empties = 0;                                  // of the missing ones, those without a word
  size_t distinct = 0;                                 // different cells that are not missing
  bool whole = true;                                   // are all numbers whole?
  bool counts_up = false;                              // is each number one more than the one before?
  bool permutes = false;                               // are they whole numbers in a row, in another order?
  bool grows = false;                                  // is each number, or date, above the one before?
  std::set<std::string> words{};                       // that stand for a missing value
  std::vector<size_t> odd{};                           // rows of the few cells that are of another kind than all others
  std::string example{};                               // its first text
  CsvHint hint{};                                      // what its texts are, if they are numbers in another form
  double letters = 0, words_of_cell = 0;               // of its texts, on average

  size_t filled() const { return numbers + dates + texts; }
  bool has_gaps() const { return filled() < rows; }
  // Does (nearly) every row have a text of its own?
  bool texts_differ() const;
  // Texts, but not as few different ones as categories have?
  bool has_many_texts() const { return kind == ColumnKind::text && (texts_differ() || distinct > kMostTexts); }
  bool is_free_text() const { return texts_differ() && (letters >= 30 || words_of_cell >= 4); }
  // Are its words fewer than its texts have letters for, as those of a name, or of a language without blanks?
  bool has_few_words() const { return words_of_cell < 2 || letters > 20 * words_of_cell; }
};

// A file's own way to write numbers and dates, the one that explains most of its cells, and what its columns are then.
struct TableReading {
  CsvFormat format;
  CsvDateOrder order = CsvDateOrder::ymd;
  bool order_is_sure = true;  // false: days and months are all below 13
  std::string order_why{};    // of such an order that was found all the same
  std::string thousands_example{};
  std::vector<InitColumn> columns;
};
TableReading read_columns(const CsvSheet& sheet);

// The columns whose texts are the model's input, in place of all others: one that was wished for; else long ones, of a table that
// has little else. Throws ConfigError for a wish that is no column of texts.
std::vector<const InitColumn*> choose_texts(const CsvSheet& sheet, const std::vector<InitColumn>& all,
                                               const InitColumn& target, bool classes, const InitWishes& wishes);
// The texts' part of the data, and the layers. others: the columns that are no input.
void add_texts(InitParts& out, const CsvSheet& sheet, const std::vector<const InitColumn*>& texts, const std::string& others);

// "patient_id", "userId".
bool is_named_as_id(const std::string& name);
// Does init take this for a missing value: "NA", "?"?
bool is_word_for_missing(std::string_view cell);
// "houses.csv:17:3", as errors of the table name a cell.
std::string cell_place(const CsvSheet& sheet, size_t row, size_t column);
// How a config names a column: by its name, or by its number where there is no header.
std::string reference(const CsvSheet& sheet, const InitColumn& c);
// How a sentence names it.
std::string spoken(const CsvSheet& sheet, const InitColumn& c);
// Why a column is no input: "counts the rows"; "": it is one.
std::string reason_to_leave_out(const CsvSheet& sheet, const InitColumn& c);

}  // namespace halfstep::app
