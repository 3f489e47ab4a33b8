// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>

#include "apps/run/starter.h"
#include "framework/base/check.h"
#include "framework/data/csv_sheet.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

// What the cells of a column are.
struct Column {
  size_t at = 0;
  std::string name;
  size_t numbers = 0, empty = 0, texts = 0, dates = 0;
  bool whole = true, counts_up = true;    // of its numbers; counts_up: each is one more than the one before
  std::set<std::string> distinct, words;  // distinct: at most kDistinct of its cells; words: those for "missing"
  bool is_number() const { return numbers > 0 && texts == 0; }
  bool is_date(size_t rows) const { return dates > 0 && dates + empty == rows; }
};
constexpr size_t kDistinct = 1000;

bool is_missing_word(const std::string& cell) {
  static const std::set<std::string> words = {"?", "na", "n/a", "nan", "null", "none", "-", "."};
  return words.contains(lower(cell));
}

Column look_at(const CsvSheet& sheet, size_t at, const CsvFormat& format, CsvDateOrder order) {
  Column c{.at = at, .name = sheet.names()[at]};
  double before = NAN;
  for (size_t row = 0; row < sheet.rows(); ++row) {
    const std::string cell(sheet.cell(row, at));
    double v = 0;
    CsvDate date;
    if (cell.empty()) {
      ++c.empty;
    } else if (parse_number(cell, format, v) && std::isfinite(v)) {
      ++c.numbers;
      c.whole &= v == std::floor(v);
      c.counts_up &= std::isnan(before) || v == before + 1;
      before = v;
    } else if (is_missing_word(cell)) {
      ++c.empty;
      c.words.insert(cell);
    } else if (parse_date(cell, order, date)) {
      ++c.dates;
    } else {
      ++c.texts;
    }
    if (!cell.empty() && c.distinct.size() < kDistinct) c.distinct.insert(cell);
  }
  return c;
}

// The file's own way to write numbers and dates: the one that explains most of its cells.
struct Reading {
  CsvFormat format;
  CsvDateOrder order = CsvDateOrder::ymd;
  std::vector<Column> columns;
};
Reading read(const CsvSheet& sheet) {
  const auto texts = [](const std::vector<Column>& columns) {
    size_t n = 0;
    for (const Column& c : columns) n += c.texts;
    return n;
  };
  std::optional<Reading> best;
  for (const auto& [decimal, thousands] : {std::pair('.', char(0)), {',', char(0)}, {',', '.'}, {'.', ','}}) {
    if (decimal == sheet.format().delimiter || (thousands && thousands == sheet.format().delimiter)) continue;
    for (const CsvDateOrder order : {CsvDateOrder::ymd, CsvDateOrder::dmy, CsvDateOrder::mdy}) {
      Reading r{{sheet.format().delimiter, decimal, thousands}, order, {}};
      for (size_t c = 0; c < sheet.names().size(); ++c) r.columns.push_back(look_at(sheet, c, r.format, order));
      if (!best || texts(r.columns) < texts(best->columns)) best = std::move(r);
    }
  }
  return *best;
}

// How a config names a column: by its name, or by its number where there is no header.
std::string reference(const CsvSheet& sheet, const Column& c) {
  return sheet.has_header() ? in_quotes(c.name) : std::to_string(c.at);
}
std::string spoken(const CsvSheet& sheet, const Column& c) {
  return sheet.has_header() ? c.name : "column " + std::to_string(c.at);
}

void add_format(StarterParts& out, const Reading& r) {
  if (r.format.decimal != '.')
    out.data.push_back({joined(R"("decimal": ")", r.format.decimal, '"'), "numbers have a decimal comma"});
  if (r.format.thousands)
    out.data.push_back({joined(R"("thousands": ")", r.format.thousands, '"'), "groups of three digits are separated"});
}

void add_split(StarterParts& out, const char* type, const fs::path& file, bool in_order, bool stratified) {
  const std::string more = stratified ? R"(, "stratified": true)" : "";
  for (const auto& [split, range] : {std::pair("train", "[0, 0.8]"), std::pair("val", "[0.8, 1]")}) {
    const bool first = std::string_view(split) == "train";
    out.data.push_back({joined('"', split, R"(": {"type": ")", type, R"(", "path": )", in_quotes(file.filename().string()),
                               R"(, "range": )", range, more, "}"),
                        first      ? (in_order ? "the first rows" : "a random part, which depends on seed")
                        : in_order ? "the rows after them"
                                   : "the rest"});
  }
}

// One column over time: the values after a window of it are predicted.
StarterParts series(const CsvSheet& sheet, const Reading& r, const fs::path& file, const Column& date, const Column& values) {
  StarterParts out;
  const auto rows = int64_t(sheet.rows());
  const int64_t window = std::clamp<int64_t>(rows / 10, 4, 28);
  out.what = joined("a series of ", rows, " values of ", spoken(sheet, values));
  out.data.push_back({"\"root\": " + in_quotes(file.has_parent_path() ? file.parent_path().string() : "."), ""});
  out.data.push_back({"\"column\": " + reference(sheet, values), ""});
  if (date.is_date(sheet.rows()) && r.order == CsvDateOrder::ymd)
    out.data.push_back({"\"time\": " + reference(sheet, date), "must increase from row to row"});
  add_format(out, r);
  out.data.push_back({joined("\"window\": ", window), "values that the model sees"});
  out.data.push_back({"\"horizon\": 1", "values after them, which it predicts"});
  add_split(out, "TimeSeries", file, true, false);
  out.layers = {{R"("Flatten", {"type": "Linear", "out_features": 64}, "ReLU")", ""},
                {R"({"type": "Linear", "out_features": 1})", "as horizon"}};
  out.loss = R"("MSELoss")", out.metrics = R"(["rmse"])";
  out.samples = std::max<int64_t>(1, rows * 4 / 5 - window);
  return out;
}

const Column* named_target(const std::vector<Column>& columns) {
  for (const char* name : {"target", "label", "labels", "class", "y", "outcome"})
    for (const Column& c : columns)
      if (lower(c.name) == name) return &c;
  return nullptr;
}

}  // namespace

StarterParts table_starter(const fs::path& file) {
  const CsvSheet sheet("init", file, {}, {});
  const Reading r = read(sheet);
  const size_t rows = sheet.rows();
  check<DataError>(r.columns.size() > 1, "init", file.string(), " has one column, where a table has inputs and a target",
                   Help{"is the delimiter another one than comma, semicolon, tab or |?"});
  if (r.columns.size() == 2 && r.columns[0].is_date(rows) && r.columns[1].is_number())
    return series(sheet, r, file, r.columns[0], r.columns[1]);

  const Column* const named = sheet.has_header() ? named_target(r.columns) : nullptr;
  const Column& target = named ? *named : r.columns.back();
  std::string excluded, why, dates;
  int inputs = 0;
  for (const Column& c : r.columns) {
    if (&c == &target) continue;
    const std::string name = lower(c.name);
    const bool number_of_row = c.is_number() && c.counts_up && c.whole && rows > 2;
    const bool all_differ = c.texts > 0 && c.distinct.size() > 20 && 2 * c.distinct.size() > std::min(rows, kDistinct);
    if (number_of_row || all_differ || c.numbers + c.texts + c.dates == 0 || (sheet.has_header() && name == "id")) {
      excluded += (excluded.empty() ? "" : ", ") + reference(sheet, c);
      why += (why.empty() ? "" : "; ") + spoken(sheet, c) +
             (number_of_row     ? " counts the rows"
              : all_differ      ? " has texts that nearly all differ"
              : c.empty == rows ? " is empty"
                                : " is no input");
    } else {
      ++inputs;
      if (c.is_date(rows)) dates += (dates.empty() ? "" : ", ") + reference(sheet, c);
    }
  }
  check<DataError>(inputs > 0, "init", file.string(), " has no column that could be an input: ", why);

  const bool texts = target.texts > 0 || target.dates > 0;
  const size_t values = target.distinct.size();
  const bool classes = texts || (target.whole && values <= 20 && 5 * values <= rows);
  StarterParts out;
  out.what = joined("a table of ", rows, " rows and ", r.columns.size(), " columns, to predict ", spoken(sheet, target));
  out.data.push_back({"\"root\": " + in_quotes(file.has_parent_path() ? file.parent_path().string() : "."), ""});
  out.data.push_back({"\"target\": " + reference(sheet, target), named ? "by its name" : "the last column"});
  out.data.push_back({joined("\"task\": ", classes ? "\"classification\"" : "\"regression\""),
                      joined(values, values == kDistinct ? " or more" : "", " different ",
                             texts          ? "texts"
                             : target.whole ? "whole numbers"
                                            : "numbers",
                             classes && !texts ? "; or \"regression\", with MSELoss" : "")});
  add_format(out, r);
  if (!excluded.empty()) out.data.push_back({"\"exclude\": [" + excluded + "]", why});
  if (!dates.empty()) {
    out.data.push_back(
        {"\"dates\": [" + dates + "]", "days since 1970; \"dates_as\": \"parts\" gives year, month, day and weekday"});
    if (r.order != CsvDateOrder::ymd)
      out.data.push_back({joined(R"("date_order": ")", r.order == CsvDateOrder::dmy ? "dmy" : "mdy", '"'), ""});
  }
  size_t gaps = 0;
  std::set<std::string> words;
  for (const Column& c : r.columns) {
    if (&c == &target || c.empty == rows) continue;
    gaps += c.empty;
    words.insert(c.words.begin(), c.words.end());
  }
  if (gaps > 0) out.data.push_back({R"("missing": "median")", joined(gaps, " cells are missing")});
  if (!words.empty()) {
    std::string list;
    for (const std::string& w : words) list += (list.empty() ? "" : ", ") + in_quotes(w);
    out.data.push_back({"\"missing_words\": [" + list + "]", "how they are written"});
  }
  out.data.push_back({R"("standardize": true)", "inputs to mean 0 and deviation 1 of the training data"});
  if (!classes)
    out.data.push_back(
        {R"("standardize_target": true)", "targets as well; metrics and predictions are in the units of the column"});
  add_split(out, "CSV", file, false, classes);
  const int64_t width = rows < 500 ? 32 : rows < 20000 ? 64 : 128;
  out.layers = {
      {joined(R"({"type": "Linear", "out_features": )", width, R"(}, "ReLU")"), ""},
      {R"({"type": "Linear", "out_features": "auto"})", classes ? "\"auto\": one for each class" : "\"auto\": one number"}};
  out.loss = classes ? R"("CrossEntropyLoss")" : R"("MSELoss")";
  if (!classes) out.metrics = R"(["rmse", "r2"])";
  out.samples = int64_t(rows) * 4 / 5;
  out.batch_size = rows < 5000 ? 32 : 128;
  out.lr = 0.003;
  return out;
}

}  // namespace halfstep::app
