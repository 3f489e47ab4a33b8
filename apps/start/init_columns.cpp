// SPDX-License-Identifier: Apache-2.0
#include "apps/start/init_columns.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "apps/start/init_leaks.h"
#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tables/series_times.h"

namespace halfstep::app {
namespace {

constexpr double kExact = 9007199254740992;  // 2^53: whole numbers from here on are not exact
constexpr size_t kMostOddTexts = 5;          // different ones in a column of numbers or dates

enum class CellKind : uint8_t { missing, number, date, text };

CellKind kind_of_cell(std::string_view cell, const CsvFormat& format, CsvDateOrder order, double& value, CsvDate& date) {
  if (cell.empty()) return CellKind::missing;
  if (parse_number(cell, format, value) && std::abs(value) <= double(std::numeric_limits<float>::max())) return CellKind::number;
  if (is_word_for_missing(cell)) return CellKind::missing;
  return parse_date(cell, order, date) ? CellKind::date : CellKind::text;
}

// Returns the number of a cell that is a plain one in this format, without parsing its text; NaN: its text is needed, such as that
// of an integer that is not exact as a number.
double plain_number(const CsvSheet& sheet, size_t row, size_t column, const CsvFormat& format) {
  const double value = format.decimal == sheet.format().decimal ? sheet.plain_number(row, column) : NAN;
  return std::abs(value) < kExact ? value : NAN;
}

// Returns whether all cells are months such as "01.2015", which are numbers, too.
bool are_months(const CsvSheet& sheet, size_t column) {
  bool has_month = false;
  CsvDate date;
  for (size_t row = 0; row < sheet.rows(); ++row) {
    const std::string_view cell = sheet.cell(row, column);
    if (cell.empty()) continue;
    if (cell.size() != 7 || !parse_date(cell, CsvDateOrder::ymd, date)) return false;
    has_month = true;
  }
  return has_month;
}

// Returns whether a cell starts as a number; accounting marks, such as "(" and a currency sign of several bytes, may precede its
// first digit.
bool starts_as_number(std::string_view cell) {
  const size_t at = cell.find_first_of("0123456789");
  return at <= 5 && std::none_of(cell.begin(), cell.begin() + std::ptrdiff_t(at), [](unsigned char c) { return std::isalpha(c); });
}

// Cells that are neither numbers nor dates, and those of them that begin as numbers.
struct UnparsedCells {
  size_t texts = 0, like_numbers = 0, dates = 0;
};
UnparsedCells unparsed_cells(const CsvSheet& sheet, const CsvFormat& format, CsvDateOrder order) {
  UnparsedCells out;
  double value = 0;
  CsvDate date;
  for (size_t c = 0; c < sheet.names().size(); ++c) {
    for (size_t row = 0; row < sheet.rows(); ++row) {
      if (!std::isnan(plain_number(sheet, row, c, format))) continue;
      const std::string_view cell = sheet.cell(row, c);
      const CellKind kind = kind_of_cell(cell, format, order, value, date);
      out.dates += kind == CellKind::date;
      out.texts += kind == CellKind::text;
      out.like_numbers += kind == CellKind::text && starts_as_number(cell);
    }
  }
  return out;
}

// Returns the form of the column's texts if all are numbers in another form.
CsvHint shared_hint(const CsvSheet& sheet, const InitColumn& c, const TableReading& r, bool quantities = false) {
  CsvHint first;
  double value = 0;
  CsvDate date;
  for (size_t row = 0; row < c.rows; ++row) {
    const std::string_view cell = sheet.cell(row, c.index);
    if (kind_of_cell(cell, r.format, r.order, value, date) != CellKind::text) continue;
    const CsvHint hint = quantities ? quantity_hint(cell, r.format) : number_hint(cell, r.format);
    if (hint.what.empty() || (quantities && !first.what.empty() && hint.what != first.what)) return {};
    if (first.what.empty()) first = hint;
  }
  return first;
}

// Sets the kind of a column with several kinds of cells. A few cells of another kind than nearly all become missing values.
void declare_odd_cells(const CsvSheet& sheet, const TableReading& r, InitColumn& c) {
  const size_t most = std::max(c.numbers, c.dates), others = c.filled() - most;
  const CellKind kind = c.numbers >= c.dates ? CellKind::number : CellKind::date;
  c.kind = c.texts == c.filled() ? ColumnKind::text : ColumnKind::mixed;
  constexpr size_t kLeastOfKind = 10, kOddShare = 20;  // at most 1/20 of the cells are odd
  if (most < kLeastOfKind || others > std::max<size_t>(1, most / kOddShare)) return;
  std::set<std::string> words;
  std::vector<size_t> rows;
  double value = 0;
  CsvDate date;
  for (size_t row = 0; row < c.rows; ++row) {
    const std::string_view cell = sheet.cell(row, c.index);
    const CellKind own_kind = kind_of_cell(cell, r.format, r.order, value, date);
    if (own_kind == CellKind::missing || own_kind == kind) continue;
    if (own_kind == CellKind::number) return;  // a number declared as missing would be missing in all columns
    words.emplace(cell);
    rows.push_back(row);
  }
  if (words.size() > kMostOddTexts) return;
  c.kind = kind == CellKind::number ? ColumnKind::number : ColumnKind::date;
  c.odd_rows = std::move(rows);
  c.distinct -= words.size();
  c.words.merge(words);
  (kind == CellKind::number ? c.dates : c.numbers) = 0;
  c.texts = 0;
}

// Counts the cells of a column by kind, and finds what its values have in common.
InitColumn read_column(const CsvSheet& sheet, size_t at, const TableReading& r) {
  InitColumn c{.index = at, .name = sheet.names()[at], .rows = sheet.rows()};
  std::vector<std::string_view> cells;
  std::vector<double> plain;
  double before = NAN, least = INFINITY, most = -INFINITY, value = 0, letters = 0, blanks = 0;
  bool counts = true, grows = true;
  const bool months = are_months(sheet, at);
  CsvDate date;
  for (size_t row = 0; row < c.rows; ++row) {
    const double number = months ? NAN : plain_number(sheet, row, at, r.format);
    const std::string_view cell = std::isnan(number) ? sheet.cell(row, at) : std::string_view();
    const bool month = months && parse_date(cell, r.order, date);
    const CellKind kind = month                ? CellKind::date
                          : std::isnan(number) ? kind_of_cell(cell, r.format, r.order, value, date)
                                               : (value = number, CellKind::number);
    if (kind == CellKind::missing) {
      cell.empty() ? void(++c.empties) : void(c.words.emplace(cell));
      continue;
    }
    std::isnan(number) ? cells.push_back(cell) : plain.push_back(number);
    if (kind == CellKind::text) {
      ++c.texts;
      letters += double(cell.size()), blanks += double(std::count(cell.begin(), cell.end(), ' ')) + 1;
      if (c.example.empty()) c.example = cell;
      continue;
    }
    if (kind == CellKind::date) value = date.days;
    ++(kind == CellKind::date ? c.dates : c.numbers);
    c.all_integers = c.all_integers && value == std::floor(value);
    counts = counts && (std::isnan(before) || value == before + 1) && value < kExact;
    grows = grows && !(value <= before);
    before = value, least = std::min(least, value), most = std::max(most, value);
  }
  std::sort(cells.begin(), cells.end());
  std::sort(plain.begin(), plain.end());
  c.distinct = size_t(std::unique(cells.begin(), cells.end()) - cells.begin()) +
               size_t(std::unique(plain.begin(), plain.end()) - plain.begin());
  if (c.texts > 0) c.letters = letters / double(c.texts), c.words_of_cell = blanks / double(c.texts);
  const size_t filled = c.filled();
  if (filled == 0) return c;
  if (c.numbers == filled)
    c.kind = ColumnKind::number;
  else if (c.dates == filled)
    c.kind = ColumnKind::date;
  else
    declare_odd_cells(sheet, r, c);
  const bool is_complete = filled == c.rows && c.kind == ColumnKind::number && c.odd_rows.empty();
  c.counts_up = is_complete && c.all_integers && counts;
  c.is_permutation = is_complete && c.all_integers && c.distinct == c.rows && most - least + 1 == double(c.rows);
  c.grows = filled == c.rows && grows && (c.kind == ColumnKind::number || c.kind == ColumnKind::date);
  if (c.kind == ColumnKind::text || c.kind == ColumnKind::mixed) c.hint = shared_hint(sheet, c, r);
  if (c.kind == ColumnKind::text && c.hint.what.empty() && c.distinct > kFewQuantities) c.hint = shared_hint(sheet, c, r, true);
  return c;
}

// Returns whether a name is missing: "", or "Unnamed: 0", which pandas writes above an index.
bool has_no_name(const std::string& name) { return name.empty() || name.starts_with("Unnamed: "); }

}  // namespace

bool is_named_as_id(const std::string& name) {
  static const std::set<std::string> things = {"patient", "user",    "customer", "subject",   "participant", "client",  "member",
                                               "person",  "account", "employee", "household", "respondent",  "session", "student"};
  const std::string small = lower_case(name);
  const size_t n = name.size();
  const bool ends =
      small.ends_with("_id") || small.ends_with(" id") || small.ends_with("-id") || small.ends_with(".id") ||
      (n > 2 && (name.ends_with("Id") || name.ends_with("ID")) && std::islower(static_cast<unsigned char>(name[n - 3])));
  if (ends || small == "id" || small == "index" || small == "rownames" || small == "uuid" || small == "guid" ||
      small.ends_with("_uuid") || small.ends_with("_guid"))
    return true;
  if ((small.starts_with("id_") || small.starts_with("id ")) && things.contains(small.substr(3))) return true;
  for (const char* end : {"id", "_no", "_nr", "_num", "_number", " no", " no.", " number", "no", "nr", "number"})
    if (small.ends_with(end) && things.contains(small.substr(0, n - std::string_view(end).size()))) return true;
  return false;
}

bool is_word_for_missing(std::string_view cell) {
  static const std::set<std::string> words = {"?",    "na", "n/a", "#n/a", "nan",          "null",
                                              "none", "-",  "--",  ".",    "\xe2\x80\x93", "\xe2\x80\x94"};
  return cell.size() <= 4 && words.contains(lower_case(cell));
}

bool InitColumn::texts_differ() const {
  return kind == ColumnKind::text && ((distinct == filled() && distinct >= 5) || (distinct > 20 && 2 * distinct > filled()));
}

// Returns whether accounting's marks turn texts into numbers. Not if a column of texts then mixes both, or has them on all of its
// numbers, like "(1)" and "(2)" that number something.
bool reads_accounting(const CsvSheet& sheet, const CsvFormat& plain, const CsvFormat& accounting, CsvDateOrder order) {
  bool has_marks = false;
  double value = 0;
  CsvDate date;
  for (size_t c = 0; c < sheet.names().size(); ++c) {
    size_t numbers = 0, more = 0, texts = 0, marks = 0;  // marks: parentheses and the like, without a currency
    for (size_t row = 0; row < sheet.rows(); ++row) {
      const std::string_view cell = sheet.cell(row, c);
      const CellKind before = kind_of_cell(cell, plain, order, value, date),
                     after = kind_of_cell(cell, accounting, order, value, date);
      numbers += before == CellKind::number;
      more += before != CellKind::number && after == CellKind::number;
      texts += after == CellKind::text;
      CsvNumberForm form;
      if (after == CellKind::number && before != after && parse_number(cell, accounting, value, form))
        marks += form.currency.empty();
    }
    if (more > 0 && numbers == 0 && (texts > 0 || marks == more)) return false;
    has_marks |= more > 0;
  }
  return has_marks;
}

TableReading read_columns(const CsvSheet& sheet) {
  TableReading out{.format = {sheet.format().delimiter, '.', 0}, .columns = {}};
  UnparsedCells best = unparsed_cells(sheet, out.format, out.order);
  const char delimiter = sheet.format().delimiter;
  const auto try_format = [&](char decimal, char thousands) {
    const CsvFormat format{delimiter, decimal, thousands};
    if (const UnparsedCells found = unparsed_cells(sheet, format, out.order); found.texts < best.texts)
      best = found, out.format = format;
  };
  if (best.like_numbers > 0) {
    using Signs = std::pair<char, char>;
    const std::vector<Signs> comma = {{',', 0}, {',', '.'}, {',', ' '}}, point = {{'.', ','}, {'.', ' '}, {'.', '\''}};
    // A comma that also delimits is in cells with quotes; there it is decimal only if it cannot separate thousands.
    const bool comma_last = delimiter == ',';
    for (const auto* const signs : {comma_last ? &point : &comma, comma_last ? &comma : &point})
      for (const auto& [decimal, thousands] : *signs) try_format(decimal, thousands);
  }
  for (const auto& [decimal, thousands] : {std::pair(out.format.decimal, out.format.thousands), {',', '.'}, {'.', ','}}) {
    const CsvFormat marks{.delimiter = delimiter, .decimal = decimal, .thousands = thousands, .accounting = true};
    CsvFormat plain = marks;
    plain.accounting = false;
    if (best.like_numbers == 0 || decimal == delimiter || !reads_accounting(sheet, plain, marks, out.order)) continue;
    if (const UnparsedCells found = unparsed_cells(sheet, marks, out.order); found.texts < best.texts)
      best = found, out.format = marks;
  }
  if (best.like_numbers > 0) {  // try another order of dates too
    const UnparsedCells day_first = unparsed_cells(sheet, out.format, CsvDateOrder::dmy),
                        month_first = unparsed_cells(sheet, out.format, CsvDateOrder::mdy);
    const bool day = day_first.texts <= month_first.texts;
    if (std::min(day_first.texts, month_first.texts) < best.texts) {
      out.order = day ? CsvDateOrder::dmy : CsvDateOrder::mdy;
      out.order_is_sure = day_first.texts != month_first.texts;
    }
    for (size_t c = 0; c < sheet.names().size() && !out.order_is_sure && out.order_why.empty(); ++c) {
      const std::optional<CsvDateOrder> order = order_by_steps(sheet, c);
      if (!order) continue;
      out.order = *order;
      out.order_why = joined("no day is above 12, but so the rows of ", sheet.names()[c], " are evenly apart");
    }
  }
  for (size_t c = 0; c < sheet.names().size(); ++c) out.columns.push_back(read_column(sheet, c, out));
  for (const InitColumn& c : out.columns) {
    if (!out.format.thousands || c.kind != ColumnKind::number) continue;
    for (size_t row = 0; row < c.rows && out.thousands_example.empty(); ++row) {
      const std::string_view cell = sheet.cell(row, c.index);
      double value = 0;
      if (cell.find(out.format.thousands) != std::string_view::npos && parse_number(cell, out.format, value))
        out.thousands_example = joined('"', cell, "\" is ", int64_t(value));
    }
  }
  return out;
}

std::string reference(const CsvSheet& sheet, const InitColumn& c) {
  const std::vector<std::string>& names = sheet.names();
  const bool is_unique =
      std::count_if(names.begin(), names.end(), [&](const std::string& n) { return text_key(n) == text_key(c.name); }) == 1;
  return sheet.has_header() && is_unique ? in_quotes(c.name) : std::to_string(c.index);
}

std::string phrase(const CsvSheet& sheet, const InitColumn& c) {
  return !sheet.has_header() ? joined("column ", c.index)
         : c.name.empty()    ? joined("column ", c.index, ", which has no name,")
                             : c.name;
}

std::string cell_place(const CsvSheet& sheet, size_t row, size_t column) {
  try {  // only errors of a sheet contain places
    sheet.fail_at(row, column, "");
  } catch (const DataError& e) {
    const std::string text = e.what();
    const size_t from = text.find("] ") + 2;
    return text.substr(from, text.find(": column") - from);
  }
}

std::string reason_to_leave_out(const CsvSheet& sheet, const InitColumn& c) {
  if (names_parts(sheet, c)) return "names parts of the data";
  const bool all_differ = c.distinct == c.filled(), index = c.kind == ColumnKind::number && c.all_integers;
  if (c.kind == ColumnKind::empty) return "is empty";
  if (20 * c.filled() < c.rows) return joined("is empty but for ", c.filled(), c.filled() == 1 ? " row" : " rows");
  if (c.distinct == 1 && !c.has_gaps()) return "has one value alone";
  if (c.counts_up && c.rows > 2) return "counts the rows";
  if (c.is_permutation && c.rows >= 10) return "numbers the rows, in another order";
  if (sheet.has_header() && has_no_name(c.name) && (index || all_differ)) return "is an index without a name";
  if (sheet.has_header() && is_named_as_id(c.name) && (all_differ || lower_case(c.name) == "id")) return "is an id";
  const std::string such = joined(" such as \"", c.example.substr(0, 40), '"');
  if (c.kind == ColumnKind::mixed || c.kind == ColumnKind::text) {
    if (!c.hint.what.empty() && c.texts > 0 && !c.hint.word)
      return joined("has ", c.hint.what == "dates" ? "" : "numbers with ", c.hint.what, such, ": ", c.hint.remedy);
  }
  if (c.kind == ColumnKind::mixed)
    return joined("mixes ", c.numbers + c.dates, c.dates > c.numbers ? " dates" : " numbers", " and ", c.texts, " texts", such);
  if (c.is_free_text()) return joined("has free texts (", c.distinct, " different in ", c.filled(), " rows)");
  if (c.texts_differ()) return joined("has texts that nearly all differ (", c.distinct, " in ", c.filled(), " rows)");
  if (c.kind == ColumnKind::text && c.distinct > kMostTexts)
    return joined("has ", c.distinct, " different texts, where a column may have ", kMostTexts);
  return "";
}

}  // namespace halfstep::app
