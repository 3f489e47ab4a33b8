// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_set>

#include "apps/schema/shell_word.h"
#include "apps/start/init_columns.h"
#include "apps/start/init_config.h"
#include "apps/start/init_leaks.h"
#include "apps/start/init_reading.h"
#include "apps/start/init_series.h"
#include "framework/base/check.h"
#include "framework/base/list_text.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
using Columns = std::vector<InitColumn>;

constexpr size_t kMostClasses = 1000;  // as framework/data/tables/csv.cpp

}  // namespace

std::string in_pandas(const fs::path& file, const std::string& change) {
  return joined("in Python: import pandas; t = pandas.read_csv(", in_quotes(file.string()), "); ", change, "; t.to_csv(",
                in_quotes(file.stem().string() + "_new.csv"), ", index=False)");
}

void add_format(InitParts& out, const TableReading& r, const InitReading& reading) {
  if (r.format.thousands && r.format.thousands == r.format.delimiter && reading.format.delimiter == 0)
    out.data.push_back({joined(R"("delimiter": ")", r.format.delimiter, '"'), "said here, since it separates thousands, too"});
  if (r.format.decimal == r.format.delimiter && reading.format.delimiter == 0)
    out.data.push_back({joined(R"("delimiter": ")", r.format.delimiter, '"'), "said here, since it is the decimal sign, too"});
  if (r.format.decimal != '.')
    out.data.push_back({joined(R"("decimal": ")", r.format.decimal, '"'), "numbers have a decimal comma"});
  if (r.format.accounting)
    out.data.push_back({R"("accounting": true)", "numbers have brackets, signs behind them or currency signs"});
  if (!r.format.thousands) return;
  out.data.push_back({joined(R"("thousands": ")", r.format.thousands, '"'), "groups of three digits are separated"});
  if (!r.thousands_example.empty()) out.notes.push_back("thousands are separated: " + r.thousands_example);
}

void add_split(InitParts& out, const char* type, const fs::path& file, const std::string& train, const std::string& val,
               bool stratified) {
  const std::string more = stratified ? R"(, "stratified": true)" : "";
  for (const auto& [split, range] : {std::pair("train", "[0, 0.8]"), std::pair("val", "[0.8, 1]")})
    out.data.push_back({joined('"', split, R"(": {"type": ")", type, R"(", "path": )", in_quotes(file.filename().string()),
                               R"(, "range": )", range, more, "}"),
                        std::string_view(split) == "train" ? train : val});
}

// Notes cells that are declared as missing although they contain something else.
void note_odd_cells(InitParts& out, const CsvSheet& sheet, const InitColumn& c) {
  if (c.odd_rows.empty()) return;
  std::vector<std::string> cells;
  for (const size_t row : c.odd_rows)
    cells.push_back(joined('"', sheet.cell(row, c.index).substr(0, 40), "\" in ", cell_place(sheet, row, c.index)));
  out.notes.push_back(joined(phrase(sheet, c), " has ", c.odd_rows.size() == 1 ? "a cell that is no " : "cells that are no ",
                             c.kind == ColumnKind::date ? "date" : "number", ", taken for a missing value: ", list_text(cells, 5),
                             "; correct it in the file, or leave it"));
}

namespace {

// ---- the target

struct TargetChoice {
  const InitColumn* column = nullptr;
  std::string why;
  std::vector<std::string> others;  // other possible targets
  std::vector<std::string> passed_over{};  // notes of columns that would be the target by their names
};

// The names of targets, the surest first, and those that come after a last column that could be one.
constexpr std::string_view kSureNames[] = {"target", "label", "labels", "outcome", "species", "survived", "diagnosis", "churn"},
                           kOtherNames[] = {"y", "class"};

bool has_name(const InitColumn& c, std::string_view wanted) { return lower_case(c.name) == wanted; }

bool has_a_name(const InitColumn& c, std::span<const std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return has_name(c, name); });
}

// Returns why a column is not chosen as target unless requested; "": it could be.
std::string reason_against_target(const CsvSheet& sheet, const InitColumn& c) {
  const std::string left_out = reason_to_leave_out(sheet, c);
  if (names_parts(sheet, c)) return left_out;
  if (c.kind == ColumnKind::text && !c.texts_differ() && c.distinct > 1 && c.distinct <= kMostClasses && 2 * c.filled() >= c.rows)
    return "";
  if (!left_out.empty()) return left_out;
  if (c.kind == ColumnKind::date) return "has dates";
  if (2 * c.filled() < c.rows) return joined("is empty in ", c.rows - c.filled(), " of ", c.rows, " rows");
  if (c.distinct < 2) return "has one value alone";
  if (sheet.has_header() && c.kind == ColumnKind::number && is_named_as_time(c)) return "is a time";
  return "";
}

TargetChoice choose_target(const CsvSheet& sheet, const Columns& all, const InitWishes& wishes, const fs::path& file) {
  TargetChoice out;
  std::string reasons;
  std::vector<const InitColumn*> could;
  for (const InitColumn& c : all) {
    const std::string against = reason_against_target(sheet, c);
    if (against.empty()) {
      could.push_back(&c);
      continue;
    }
    if (wishes.target.empty() && sheet.has_header() && (has_a_name(c, kSureNames) || has_a_name(c, kOtherNames)))
      out.passed_over.push_back(joined(c.name, " would be the target by its name, but ", against, "; --target ", shell_word(c.name),
                                       " takes it all the same"));
    reasons += (reasons.empty() ? "" : "; ") + phrase(sheet, c) + ' ' + against;
  }
  const auto take = [&](const InitColumn* c, const char* why) {
    if (!out.column && c) out.column = c, out.why = why;
  };
  const auto named = [&](std::span<const std::string_view> names) -> const InitColumn* {
    for (const std::string_view name : names)
      for (const InitColumn* c : could)
        if (sheet.has_header() && has_name(*c, name)) return c;
    return nullptr;
  };
  if (!wishes.target.empty()) {
    take(&all[sheet.find(wishes.target)], "as asked");
    check<DataError>(out.column->distinct > 1, "init", file.string(), ": the target must have two different values, but ",
                     phrase(sheet, *out.column), " has ", out.column->distinct == 0 ? "none" : "one alone",
                     Help{could.empty() ? "no column has them: is the file whole?" : "give another --target"});
  }
  take(named(kSureNames), "by its name");
  if (!could.empty() && could.back() == &all.back()) take(could.back(), "the last column");
  take(named(kOtherNames), "by its name");
  if (!could.empty()) take(could.back(), "the last column that could be one");
  check<DataError>(out.column, "init", file.string(), " has no column that could be the target: ", reasons,
                   Help{"--target COLUMN takes one all the same"});
  for (const InitColumn* c : could)
    if (c != out.column) out.others.push_back(sheet.has_header() ? c->name : std::to_string(c->index));
  return out;
}

// Returns whether the target is one of classes. Throws for a task that it does not allow.
bool has_classes(const CsvSheet& sheet, const InitColumn& target, const InitWishes& wishes) {
  const bool texts = target.kind != ColumnKind::number,
             few = target.all_integers && target.distinct <= 20 && 5 * target.distinct <= target.filled();
  check<ConfigError>(wishes.task != "regression" || !texts, "init", "--task regression needs a column of numbers, but ",
                     phrase(sheet, target), " has texts or dates",
                     Help{target.example.empty() ? "--task classification has a class for each date"
                                                 : joined("such as \"", target.example.substr(0, 40), '"')});
  const bool classes = wishes.task == "classification" || (wishes.task.empty() && (texts || few));
  check<DataError>(!classes || target.distinct <= kMostClasses, "init", "a target may have ", kMostClasses, " classes, but ",
                   phrase(sheet, target), " has ", target.distinct, " different ", texts ? "texts" : "numbers",
                   Help{texts ? "give another --target" : "--task regression predicts numbers"});
  return classes;
}

// ---- the table

bool is_missing_in(const CsvSheet& sheet, const InitColumn& c, size_t row) {
  if (c.words.empty() && !std::isnan(sheet.plain_number(row, c.index))) return false;
  const std::string_view cell = sheet.cell(row, c.index);
  return cell.empty() || c.words.contains(std::string(cell));
}

// Adds "missing" and its words. The reader omits rows without a target; in a text target a word such as NA may be a class.
void add_missing(InitParts& out, const CsvSheet& sheet, const InitColumn& target, bool classes,
                 const std::vector<const InitColumn*>& inputs, const char* rule) {
  size_t cells = 0, without = 0;
  std::set<std::string> words;
  const bool words_are_classes = classes && target.kind != ColumnKind::number;
  for (size_t row = 0; row < sheet.rows(); ++row) {
    for (const InitColumn* c : inputs) cells += is_missing_in(sheet, *c, row);
    without += words_are_classes ? sheet.cell(row, target.index).empty() : is_missing_in(sheet, target, row);
  }
  for (const InitColumn* c : inputs) words.insert(c->words.begin(), c->words.end());
  if (!words_are_classes) words.insert(target.words.begin(), target.words.end());
  if (without > 0)
    out.notes.push_back(joined(without, without == 1 ? " row has" : " rows have", " no value of ", phrase(sheet, target),
                               without == 1 ? ", and is left out" : ", and are left out"));
  for (const std::string& w : words_are_classes ? target.words : std::set<std::string>()) {
    size_t rows = 0;
    for (size_t row = 0; row < sheet.rows(); ++row) rows += sheet.cell(row, target.index) == w;
    const std::string word = in_quotes(w);
    out.notes.push_back(joined(word, " counts as a class of ", phrase(sheet, target), ", in ", rows, rows == 1 ? " row" : " rows",
                               "; if it means no answer, \"missing_words\": [", word, "] leaves these rows out"));
  }
  if (cells > 0)
    out.data.push_back(
        {joined(R"("missing": ")", rule, '"'), joined(cells, cells == 1 ? " cell is missing" : " cells are missing")});
  if ((without == 0 && cells == 0) || words.empty()) return;
  std::vector<std::string> list;
  for (const std::string& w : words) list.push_back(in_quotes(w));
  out.data.push_back({"\"missing_words\": [" + list_text(list, list.size()) + "]", "how they are written"});
}

// Notes what makes rows depend on each other, so that a random part for validation is too easy: equal rows, and ids.
void note_repeats(InitParts& out, const CsvSheet& sheet, const Columns& all_columns, const std::vector<const InitColumn*>& inputs) {
  constexpr size_t kFewRows = 20;  // different ones, as of a few categories, which are often equal by chance
  std::unordered_set<size_t> seen;
  size_t twice = 0;
  for (size_t row = 0; row < sheet.rows(); ++row) {
    size_t all = 0;
    for (size_t c = 0; c < sheet.names().size(); ++c) {
      const double number = sheet.plain_number(row, c);
      const size_t own = std::isnan(number) ? std::hash<std::string_view>()(sheet.cell(row, c)) : std::hash<double>()(number);
      all = (all ^ own) * 0x9e3779b97f4a7c15u + (all >> 31);
    }
    twice += !seen.insert(all).second;
  }
  size_t most = 0;
  for (const InitColumn& c : all_columns) most = std::max(most, c.distinct);
  const size_t different = sheet.rows() - twice;
  if (20 * twice >= sheet.rows() && twice > 1 && different > kFewRows && 2 * most >= different)
    out.notes.push_back(joined(twice, " of ", sheet.rows(),
                               " rows equal an earlier one in each cell; in both parts, they make "
                               "validation better than new rows are"));
  for (const InitColumn* c : inputs)
    if (sheet.has_header() && (c->kind == ColumnKind::text || c->all_integers) && c->distinct < c->filled() &&
        is_named_as_id(c->name))
      out.notes.push_back(joined(c->name, " is named as an id, with ", c->distinct, " different in ", c->filled(),
                                 " rows: an input, ", c->kind == ColumnKind::text ? "one for each" : "read as a number",
                                 "; rows of one id lie in both parts, so that validation may be better than new ids are "
                                 "(\"exclude\" leaves the column out)"));
}

// Notes values of a column that are read in another way than they are written.
void note_reading(InitParts& out, const CsvSheet& sheet, const InitColumn& c) {
  constexpr size_t kLooked = 1000;
  if (c.kind == ColumnKind::text)
    for (const std::string& word : c.words) {
      size_t cells = 0;
      for (size_t row = 0; row < sheet.rows(); ++row) cells += sheet.cell(row, c.index) == word;
      out.notes.push_back(joined(in_quotes(word), " counts as a missing value of ", phrase(sheet, c), ", in ", cells,
                                 cells == 1 ? " row" : " rows", "; without \"missing_words\" it is a text like the others"));
    }
  if (c.kind != ColumnKind::number || !c.all_integers) return;
  for (size_t row = 0; row < std::min(kLooked, sheet.rows()); ++row) {
    const std::string_view cell = sheet.cell(row, c.index);
    if (cell.size() < 2 || cell[0] != '0' || cell[1] < '0' || cell[1] > '9') continue;
    return out.notes.push_back(joined(phrase(sheet, c), " has numbers with a 0 in front, such as \"", cell.substr(0, 40),
                                      "\", which is lost; a code stays a text with a letter in front"));
  }
}

// Returns whether the first row of a table without numbers in its first rows is a header: yes if none of its cells recurs, except
// in rows that are wholly equal, and cells of other rows do; no if one recurs. Empty: undecided.
std::optional<bool> has_words_as_header(const CsvSheet& sheet) {
  bool repeats = false, number = false;
  const std::vector<size_t>& same = sheet.same_as_first();
  for (size_t c = 0; c < sheet.names().size(); ++c) {
    std::map<std::string_view, size_t> seen;
    const std::string_view first = sheet.cell(0, c);
    number |= sheet.is_number(0, c);
    for (size_t row = 0; row < sheet.rows() && !first.empty(); ++row) {
      if (std::binary_search(same.begin(), same.end(), row)) continue;
      if (row > 0 && sheet.cell(row, c) == first) return false;
      repeats |= ++seen[sheet.cell(row, c)] > 1 + same.size();
    }
  }
  return repeats && !number ? std::optional(true) : std::nullopt;
}

void add_target(InitParts& out, const CsvSheet& sheet, const TargetChoice& choice, bool classes) {
  const InitColumn& target = *choice.column;
  const std::string others =
      choice.others.empty() ? "" : joined("; others: ", list_text(choice.others), " (halfstep init --target COLUMN)");
  out.data.push_back(
      {"\"target\": " + (target.name.empty() ? std::to_string(target.index) : reference(sheet, target)), choice.why + others});
  if (!choice.others.empty())
    out.notes.push_back("the target could also be " + list_text(choice.others) +
                        ": --target COLUMN [--task classification|regression]");
  out.notes.insert(out.notes.end(), choice.passed_over.begin(), choice.passed_over.end());
  const bool texts = target.kind != ColumnKind::number;
  out.data.push_back({joined("\"task\": ", classes ? "\"classification\"" : "\"regression\""),
                      joined(target.distinct + (texts ? target.words.size() : 0), " different ",
                             texts                 ? "texts"
                             : target.all_integers ? "whole numbers"
                                                   : "numbers",
                             classes && !texts ? "; or \"regression\", with MSELoss" : "")});
}

// Returns why a column that could be an input should not be one: it is an id that rows share, or the target again.
std::string reason_to_doubt(const CsvSheet& sheet, const TableReading& r, const InitColumn& c, const InitColumn& target) {
  if (is_shared_id(sheet, c)) return joined("is an id that rows share, ", c.distinct, " different in ", c.filled(), " rows");
  return why_same_as_target(sheet, r, c, target);
}

// Returns the columns that the model gets; lists the others with reasons.
std::vector<const InitColumn*> choose_inputs(InitParts& out, const CsvSheet& sheet, const TableReading& r, const InitColumn& target,
                                             const fs::path& file) {
  std::vector<const InitColumn*> inputs, doubted;
  std::vector<std::string> excluded, why, doubts;
  bool free_text = false, texts = false;
  for (const InitColumn& c : r.columns) {
    if (&c == &target) continue;
    std::string reason = reason_to_leave_out(sheet, c);
    if (reason.empty() && target.has_gaps() && 2 * c.filled() < c.rows)
      reason = joined("is empty in ", c.rows - c.filled(), " of ", c.rows, " rows");
    const bool is_id = is_shared_id(sheet, c);
    if (reason.empty()) {
      const std::string doubt = reason_to_doubt(sheet, r, c, target);
      (doubt.empty() ? inputs : doubted).push_back(&c);
      if (!doubt.empty()) doubts.push_back(doubt);
      continue;
    }
    excluded.push_back(reference(sheet, c)), why.push_back(phrase(sheet, c) + ' ' + (is_id ? "is an id that rows share" : reason));
    free_text |= c.is_free_text() && !is_id, texts |= c.has_many_texts();
  }
  const bool all = inputs.empty();  // then a doubted input is better than none
  for (size_t i = 0; i < doubted.size(); ++i) {
    const std::string text = phrase(sheet, *doubted[i]) + ' ' + doubts[i];
    if (all)
      inputs.push_back(doubted[i]);
    else
      excluded.push_back(reference(sheet, *doubted[i])), why.push_back(text);
    if (all && doubts[i].find("under other names") != std::string::npos)
      out.notes.push_back(text + "; an input, since there is no other");
  }
  check<DataError>(!inputs.empty(), "init", file.string(), " has no column that could be an input: ", list_text(why, 8, "; "),
                   Help{texts ? "--text COLUMN takes the texts of a column for the input"
                              : "give another --target, or write the config by hand: docs/your_data.md, \"A table\""});
  if (free_text) out.notes.emplace_back("--text COLUMN takes the words of a text for the input, in place of all other columns");
  if (excluded.empty()) return inputs;
  out.data.push_back({"\"exclude\": [" + list_text(excluded, excluded.size()) + "]", list_text(why, 8, "; ")});
  out.notes.push_back("left out: " + list_text(why, 8, "; "));
  return inputs;
}

}  // namespace

InitParts init_table(const fs::path& file, const InitWishes& wishes) {
  std::optional<CsvSheet> read;
  const InitReading reading = table_reading(wishes);
  read.emplace("init", file, reading.format, reading.header);
  const std::optional<bool> header = !reading.header && read->is_header_unknown() ? has_words_as_header(*read) : std::nullopt;
  const bool first_is_repeated = !read->same_as_first().empty();
  if (header) read.emplace("init", file, reading.format, *header);
  const CsvSheet& sheet = *read;
  const TableReading r = read_columns(sheet);
  const size_t rows = sheet.rows();
  check<DataError>(r.columns.size() > 1, "init", file.string(), " has one column, where a table has inputs and a target",
                   Help{"is the delimiter another one than comma, semicolon, tab or |?"});
  if (auto series = init_series(sheet, r, file, wishes)) return *series;

  const TargetChoice choice = choose_target(sheet, r.columns, wishes, file);
  const InitColumn& target = *choice.column;
  const bool classes = has_classes(sheet, target, wishes);
  InitParts out;
  out.what = joined("a table of ", rows, " rows and ", r.columns.size(), " columns, to predict ", phrase(sheet, target), " (",
                    choice.why, ')');
  out.data.push_back({"\"root\": " + in_quotes(folder_of_file(file)), ""});
  out.data.insert(out.data.end(), reading.lines.begin(), reading.lines.end());
  add_skip_rows(out, reading);
  if (header)
    out.data.push_back({joined("\"header\": ", *header ? "true" : "false"),
                        !*header            ? "a text of the first row comes again"
                        : first_is_repeated ? "the first row comes again as a whole, and none of its texts elsewhere"
                                            : "none of the first row's texts comes again"});
  if (!sheet.notes().summary.empty()) out.notes.push_back(sheet.notes().summary);
  add_target(out, sheet, choice, classes);
  add_format(out, r, reading);
  const std::vector<const InitColumn*> texts = choose_texts(sheet, r.columns, target, classes, wishes);
  const std::vector<const InitColumn*> inputs = texts.empty() ? choose_inputs(out, sheet, r, target, file) : texts;
  std::vector<std::string> dates;
  const InitColumn* in_order = nullptr;
  for (const InitColumn* c : texts.empty() ? inputs : std::vector<const InitColumn*>()) {
    note_odd_cells(out, sheet, *c);
    note_reading(out, sheet, *c);
    if (c->kind != ColumnKind::date) continue;
    dates.push_back(reference(sheet, *c));
    if (c->grows) in_order = c;
  }
  note_odd_cells(out, sheet, target);
  note_repeats(out, sheet, r.columns, inputs);
  note_random_part(out, sheet, file, r.columns, target, inputs);
  if (!dates.empty() && !in_order)
    out.notes.push_back(joined("rows have dates (", list_text(dates),
                               "), but the part for validation is a random one: it lies between "
                               "the training rows, where later rows may be harder"));
  if (!dates.empty()) {
    out.data.push_back({"\"dates\": [" + list_text(dates, dates.size()) + "]",
                        "days since 1970; \"dates_as\": \"parts\" gives year, month, day and weekday"});
    if (r.order != CsvDateOrder::ymd)
      out.data.push_back({joined(R"("date_order": ")", r.order == CsvDateOrder::dmy ? "dmy" : "mdy", '"'),
                          r.order_is_sure        ? ""
                          : !r.order_why.empty() ? r.order_why
                                                 : "or \"mdy\": no day is above 12"});
    if (!r.order_is_sure)
      out.notes.push_back(
          joined("dates are read ", r.order == CsvDateOrder::dmy ? "day" : "month", " first; ",
                 r.order_why.empty() ? "no day is above 12, so \"date_order\": \"mdy\" would fit as well" : r.order_why));
  }
  add_missing(out, sheet, target, classes, inputs, texts.empty() ? "median" : "constant");
  if (texts.empty()) out.data.push_back({R"("standardize": true)", "inputs to mean 0 and deviation 1 of the training data"});
  if (!classes)
    out.data.push_back(
        {R"("standardize_target": true)", "targets as well; metrics and predictions are in the units of the column"});
  add_split(out, "CSV", file,
            joined("a random part, which depends on seed",
                   in_order ? joined("; rows are in the order of ", in_order->name, ", and later ones would be harder") : ""),
            "the rest", classes);
  const int64_t width = rows < 500 ? 32 : rows < 20000 ? 64 : 128;
  const bool has_many_rows = rows >= 5000;  // on fewer rows a second hidden layer does not help
  for (int layer = 0; layer < (has_many_rows ? 2 : 1); ++layer)
    out.layers.push_back({joined(R"({"type": "Linear", "out_features": )", width, R"(}, "ReLU")"), ""});
  out.layers.push_back(
      {R"({"type": "Linear", "out_features": "auto"})", classes ? "\"auto\": one for each class" : "\"auto\": one number"});
  out.loss = classes ? R"("CrossEntropyLoss")" : R"("MSELoss")";
  if (!classes) out.metrics = R"(["rmse", "r2"])";
  out.samples = int64_t(rows) * 4 / 5;
  out.batch_size = has_many_rows ? 128 : 32;
  out.lr = 0.003;
  if (!texts.empty()) {
    std::vector<std::string> others;
    for (const InitColumn& c : r.columns) {
      const bool is_used = &c == &target || std::find(texts.begin(), texts.end(), &c) != texts.end();
      if (!is_used && c.kind != ColumnKind::empty) others.push_back(c.name.empty() ? joined("column ", c.index) : phrase(sheet, c));
    }
    add_texts(out, sheet, texts, list_text(others));
  }
  out.remedy = "give another --target, or write the config by hand: docs/your_data.md, \"A table\"";
  return out;
}

}  // namespace halfstep::app
