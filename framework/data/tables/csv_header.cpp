// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_header.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

bool is_number(std::string_view cell, const CsvFormat& format) {
  double ignored;
  return parse_number(cell, format, ignored);
}

// Returns whether the cell is a number in `format`; unless strictly, also a number in another format or a date.
bool is_like_number(std::string_view cell, const CsvFormat& format, bool strictly) {
  if (is_number(cell, format)) return true;
  const CsvHint hint = strictly ? CsvHint() : number_hint(cell, format);
  return !hint.what.empty() && !hint.word;
}

// Returns whether the cell has no value.
bool is_gap(std::string_view cell, const CsvFormat& format) { return cell.empty() || number_hint(cell, format).word; }

// Returns whether the cells below `row` are numbers, except gaps and repetitions of the text of `row`, and at least one is.
bool has_numbers_below(const CsvTable& table, size_t row, size_t column, const CsvFormat& format) {
  bool some = false;
  const std::string above(table.cell(row, column));
  for (size_t r = row + 1; r < table.rows(); ++r) {
    if (std::binary_search(table.repeats().begin(), table.repeats().end(), r)) continue;
    if (!std::isnan(table.number(r, column))) {
      some = true;
      continue;
    }
    const std::string_view cell = table.cell(r, column);
    const bool number = is_number(cell, format);
    if (!number && !is_gap(cell, format) && cell != above) return false;
    some = some || number;
  }
  return some;
}

bool is_text(std::string_view cell, const CsvFormat& format) {
  return !is_gap(cell, format) && !is_like_number(cell, format, false);
}

// Returns whether the cell has digits and no letters, as no unit has: 1 1/2.
bool is_of_digits(std::string_view cell) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || uint8_t(c) >= 0x80; };
  return std::none_of(cell.begin(), cell.end(), letter) && cell.find_first_of("0123456789") != cell.npos;
}

// Returns the numbers of the first row if there are several, rising in equal steps.
std::vector<double> rising_numbers(const CsvTable& table, const CsvFormat& format, std::vector<size_t>& columns) {
  constexpr size_t kLeast = 3;        // fewer numbers rise evenly by chance
  constexpr double kRounding = 1e-6;  // of a step, relative to the numbers
  std::vector<double> out;
  for (size_t c = 0; c < table.columns(); ++c) {
    double value = 0;
    if (!parse_number(table.cell(0, c), format, value) || !std::isfinite(value)) continue;
    const size_t n = out.size();
    if (n > 0 && !(out[n - 1] < value)) return {};
    if (n > 1 && std::abs((value - out[n - 1]) - (out[1] - out[0])) > kRounding * std::abs(value)) return {};
    out.push_back(value);
    columns.push_back(c);
  }
  if (out.size() < kLeast) out.clear();
  return out;
}

// Returns how far the numbers of the first row are from those below, in multiples of the latter's range; 0: within it.
double distance_of(const CsvTable& table, const CsvFormat& format, const std::vector<double>& first,
                   const std::vector<size_t>& columns) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (size_t r = 1; r < table.rows(); ++r) {
    if (std::binary_search(table.repeats().begin(), table.repeats().end(), r)) continue;
    for (const size_t c : columns) {
      double value = table.number(r, c);
      if (std::isnan(value) && (!parse_number(table.cell(r, c), format, value) || !std::isfinite(value))) continue;
      low = std::min(low, value), high = std::max(high, value);
    }
    if (low <= first.back() && first.front() <= high) return 0;
  }
  if (!(low <= high)) return 0;
  return std::max(first.front() - high, low - first.back()) / std::max(high - low, 1e-300);
}

// What a column has below the first row.
struct Below {
  size_t numbers = 0, points = 0, texts = 0, gaps = 0;  // points: numbers written with a point or an exponent
  double low = 0, high = 0;
  bool has_first = false;  // whether the first row's text comes again
};

Below below_first(const CsvTable& table, const CsvFormat& format, size_t column) {
  constexpr size_t kMostRows = 1000;
  Below out;
  const std::string first(table.cell(0, column));
  for (size_t row = 1; row < std::min(table.rows(), kMostRows); ++row) {
    if (std::binary_search(table.repeats().begin(), table.repeats().end(), row)) continue;
    const std::string_view cell = table.cell(row, column);
    out.has_first = out.has_first || cell == first;
    double value = 0;
    if (is_gap(cell, format)) {
      ++out.gaps;
    } else if (!parse_number(cell, format, value)) {
      ++out.texts;
    } else {
      out.low = out.numbers == 0 ? value : std::min(out.low, value), out.high = std::max(out.high, value);
      ++out.numbers;
      out.points += cell.find_first_not_of("+-0123456789") != std::string_view::npos;
    }
  }
  return out;
}

enum class Counted : uint8_t { no, perhaps, yes };

// Returns whether the first row's numbers are 0, 1, 2, ..., which pandas writes above columns without names; other cells may be
// texts that do not come again, and the first one may be empty, above an index.
Counted counts_columns(const CsvTable& table, const CsvFormat& format) {
  constexpr size_t kSure = 10;  // as many numbers do not rise from 0 by chance
  size_t count = 0;
  const bool has_index = table.cell(0, 0).empty();
  bool is_sure = false, has_other = false, is_apart = false;
  const size_t columns = table.columns();
  std::vector<Below> below;
  for (size_t c = 0; c < columns; ++c) {
    const std::string_view cell = table.cell(0, c);
    const bool counts = cell == std::to_string(count);
    if (!counts && is_like_number(cell, format, false)) return Counted::no;
    if (!counts && !(c == 0 && has_index) && is_gap(cell, format)) return Counted::no;
    below.push_back(below_first(table, format, c));
    if (!counts) {
      if (!cell.empty() && below.back().has_first) return Counted::no;
      continue;
    }
    ++count;
  }
  for (size_t c = 0; c < columns; ++c) {
    const Below& b = below[c];
    if (c == 0 && has_index) {
      if (b.gaps > 0 || b.numbers + b.texts == 0) return Counted::no;
      is_sure = is_sure || count > 1 || (b.low == 0 && b.points == 0);
    } else if (is_like_number(table.cell(0, c), format, false)) {
      has_other = has_other || (b.numbers == 0 && b.texts > 0);
      is_apart = is_apart || (b.numbers > 1 && b.points == b.numbers);
      is_apart = is_apart || (count > 3 && b.numbers > 0 && (b.points > 0 || b.low < 0 || b.high > double(count - 1)));
    }
  }
  if (count == 0 || (!has_index && table.cell(1, 0) == std::to_string(count))) return Counted::no;  // a grid, 0 1 2, 3 4 5
  if (is_sure || count > kSure || (count > 1 && has_other) || (count > 2 && is_apart)) return Counted::yes;
  return count > 2 ? Counted::perhaps : Counted::no;
}

constexpr size_t kListedLines = 20;  // in an error

std::string list_of(const std::vector<int64_t>& lines) {
  std::string out;
  for (size_t i = 0; i < lines.size() && i < kListedLines; ++i) out += (i ? ", " : "") + std::to_string(lines[i]);
  return out + (lines.size() > kListedLines ? ", ..." : "");
}

}  // namespace

CsvHeader find_header(const CsvTable& table, const CsvFormat& format) {
  // Whether a cell of the first row is a number; whether one is like a number; whether the row below has one.
  bool has_number = false, has_like_number = false, below = false;
  for (size_t c = 0; c < table.columns(); ++c) {
    const bool like = is_like_number(table.cell(0, c), format, false);
    has_number = has_number || is_like_number(table.cell(0, c), format, true);
    has_like_number = has_like_number || like;
    if (table.rows() > 1) below = below || is_like_number(table.cell(1, c), format, like);
  }
  if (!has_number) {
    if (below || (table.rows() == 1 && !has_like_number)) return {true};
    for (size_t c = 0; c < table.columns() && !has_like_number; ++c)  // a row of units may be above the numbers
      if (has_numbers_below(table, 1, c, format)) return {true};
    return {has_like_number ? std::optional(false) : std::nullopt};
  }
  for (size_t c = 0; c < table.columns(); ++c) {
    const std::string_view cell = table.cell(0, c);
    if (is_text(cell, format) && has_numbers_below(table, 0, c, format))
      return {true, joined(spelled(cell.substr(0, 60)), " is a text above numbers")};
  }
  const Counted counted = table.rows() > 1 ? counts_columns(table, format) : Counted::no;
  if (counted == Counted::yes) return {true, "it counts the columns from 0, as pandas does where they have no names"};
  std::vector<size_t> columns;
  const std::vector<double> rising = rising_numbers(table, format, columns);
  if (rising.empty() || table.rows() < 2) return {false};
  if (distance_of(table, format, rising, columns) > 1)
    return {true, joined("its numbers ", table.cell(0, columns[0]), " to ", table.cell(0, columns.back()),
                         " rise evenly, and lie far from all others")};
  if (rising.size() < 4 && counted == Counted::no) return {false};
  return {false, "", /*doubtful=*/std::string(table.cell(0, columns[0]))};
}

void check_below_header(const char* where, const CsvTable& table, const CsvFormat& format, const std::string& path) {
  if (table.rows() < 3) return;
  std::optional<size_t> unit;  // a column with the text of row 2 above numbers
  for (size_t c = 0; c < table.columns(); ++c) {
    if (is_like_number(table.cell(1, c), format, false)) return;  // an ordinary row, as in nearly all files
    if (!is_text(table.cell(1, c), format) || unit || !has_numbers_below(table, 1, c, format)) continue;
    if (is_of_digits(table.cell(1, c))) return;  // a number in a form that is not known, such as 1 1/2
    unit = c;
  }
  if (!unit) return;
  const int64_t line = table.line(1);
  std::vector<int64_t> lines{line};  // files joined together each have their row of units, below their header
  const std::string text(table.cell(1, *unit));
  for (size_t r = 2; r < table.rows() && lines.size() <= kListedLines; ++r) {
    if (!std::isnan(table.number(r, *unit)) || table.cell(r, *unit) != text) continue;
    bool same = std::binary_search(table.repeats().begin(), table.repeats().end(), r - 1);
    for (size_t c = 0; c < table.columns() && same; ++c) same = table.cell(r, c) == std::string(table.cell(1, c));
    if (!same) return;  // a value that comes again
    lines.push_back(table.line(r));
  }
  const bool one = lines.size() == 1;
  fail<DataError>(where, path, ':', line, ": row ", line, " has no numbers where rows ", table.line(2), " to ",
                  table.line(table.rows() - 1), " have: is it one of units?",
                  Help{joined(R"("skip_rows": [)", list_of(lines), "] leaves ", one ? "it" : "such rows", " out; or remove ",
                              one ? "it" : "them", " from the file")});
}

}  // namespace halfstep
