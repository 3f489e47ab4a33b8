// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_doubts.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/base/number_text.h"
#include "framework/data/tables/csv_columns.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

constexpr size_t kMostNamed = 4;  // columns in one warning

// Returns the number in a cell; NaN for other cells.
double number_at(const CsvSheet& sheet, size_t row, size_t column) {
  double value = sheet.plain_number(row, column);
  if (!std::isnan(value)) return value;
  return parse_number(sheet.cell(row, column), sheet.format(), value) ? value : std::numeric_limits<double>::quiet_NaN();
}

// Returns whether programs write the number for a missing value: nines, 999.9 and -99.99 with a point, or the end of a range.
bool is_usual_mark(double value) {
  constexpr double kEnds[] = {-32768, -2147483648.0, 1e20, -1e20, 1e30, -1e30};
  if (std::find(std::begin(kEnds), std::end(kEnds), value) != std::end(kEnds)) return true;
  constexpr int kMostDigits = 9;
  double nines = 9;
  for (int digits = 1; digits <= kMostDigits; ++digits, nines = 10 * nines + 9) {
    if (std::abs(value) == nines) return value < 0 || digits > 1;
    const bool is_long = digits > (value < 0 ? 2 : 3);
    if (is_long && (std::abs(value) == nines / 10 || std::abs(value) == nines / 100)) return true;
  }
  return false;
}

struct Mark {
  size_t column = 0;
  double value = 0;
  size_t count = 0;
  double low = 0, high = 0;              // of the column's other numbers
  std::vector<std::string> spellings{};  // of the cells that have it
};

// Smallest and largest number of a column without some values.
struct Extremes {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  size_t count = 0;
};
Extremes extremes_of(const CsvSheet& sheet, size_t column, const std::vector<double>& without) {
  Extremes out;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    const double value = number_at(sheet, r, column);
    if (!std::isfinite(value) || std::find(without.begin(), without.end(), value) != without.end()) continue;
    out.low = std::min(out.low, value), out.high = std::max(out.high, value);
    ++out.count;
  }
  return out;
}

// Returns whether a mark is far from the others. Below them, it is negative among numbers that are not, or farther away than
// they are wide. Above them it may be one of them, such as a price of 99, and the shorter it is, the farther away and the more
// frequent it must be.
bool is_far_mark(const Mark& mark, const Extremes& others) {
  const double width = others.high - others.low;
  if (!(width > 0) || mark.count < 2) return false;
  if (mark.value < others.low) return others.low >= 0 || others.low - mark.value > width;
  const bool has_two_digits = mark.value < 100, has_three = !has_two_digits && mark.value < 1000;
  const double widths = has_two_digits ? 3 : has_three ? 2 : 1;
  const size_t share = has_two_digits ? 200 : 1000;  // at least 1 in so many
  return mark.value - others.high > widths * width && mark.count * share >= others.count;
}

// Returns the marks of a column, the outer ones last.
std::vector<Mark> marks_in(const CsvSheet& sheet, size_t column, const std::vector<std::string>& words) {
  constexpr size_t kMost = 4;  // marks of a column
  std::vector<double> candidates;
  Extremes rest = extremes_of(sheet, column, candidates);
  while (candidates.size() < kMost && (is_usual_mark(rest.low) || is_usual_mark(rest.high))) {
    candidates.push_back(is_usual_mark(rest.low) ? rest.low : rest.high);
    rest = extremes_of(sheet, column, candidates);
  }
  std::vector<Mark> out;
  for (auto value = candidates.rbegin(); value != candidates.rend(); ++value) {
    Mark mark{column, *value, 0, rest.low, rest.high, {}};
    std::set<std::string> spellings;
    bool is_given = false;  // whether it is a missing value already
    for (size_t r = 0; r < sheet.rows(); ++r) {
      if (number_at(sheet, r, column) != *value) continue;
      const std::string cell(sheet.cell(r, column));
      if (is_missing_cell(cell, words))
        is_given = true;
      else
        ++mark.count, spellings.insert(cell);
    }
    mark.spellings.assign(spellings.begin(), spellings.end());
    if (is_far_mark(mark, rest))
      out.push_back(mark);
    else if (!is_given)
      rest.low = std::min(rest.low, *value), rest.high = std::max(rest.high, *value), rest.count += mark.count;
  }
  return out;
}

// Returns the names of columns that have one of the words as a number like others.
std::vector<std::string> columns_with(const CsvSheet& sheet, const std::vector<size_t>& columns, const std::vector<Mark>& marks,
                                      const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const size_t c : columns) {
    const auto is_ordinary = [&](std::string_view cell) {
      if (!is_missing_cell(cell, words) || cell.empty()) return false;
      return std::none_of(marks.begin(), marks.end(),
                          [&](const Mark& m) { return m.column == c && is_missing_cell(cell, m.spellings); });
    };
    size_t row = 0;
    while (row < sheet.rows() && !is_ordinary(sheet.cell(row, c))) ++row;
    if (row < sheet.rows()) out.push_back(spelled(sheet.names()[c]));
  }
  return out;
}

// Returns whether all cells but empty ones have this many digits, with a year of 1900 to 2099 and a month, and a day if there are
// eight; and whether so many differ that this is no accident.
bool are_digits_of_dates(const CsvSheet& sheet, size_t column, size_t digits) {
  constexpr size_t kLeastDays = 2, kLeastMonths = 8;  // different ones
  std::set<std::string_view> different;
  CsvDate date;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    const std::string_view cell = sheet.cell(r, column);
    if (cell.empty()) continue;
    if (cell.size() != digits || !(cell.starts_with("19") || cell.starts_with("20"))) return false;
    if (!std::all_of(cell.begin(), cell.end(), is_digit)) return false;
    if (!parse_date(joined(cell, digits == 6 ? "01" : ""), CsvDateOrder::ymd, date)) return false;
    if (different.size() < kLeastMonths) different.insert(cell);
  }
  return different.size() >= (digits == 6 ? kLeastMonths : kLeastDays);
}

}  // namespace

std::string warn_of_missing_marks(const CsvSheet& sheet, const std::vector<size_t>& columns, const std::vector<std::string>& words,
                                  const std::string& rule) {
  std::vector<Mark> marks;
  for (const size_t c : columns)
    for (Mark& mark : marks_in(sheet, c, words)) marks.push_back(std::move(mark));
  if (marks.empty()) return "";
  std::vector<std::string> found, all, added;
  for (const std::string& word : words) all.push_back(spelled(word));
  for (const Mark& m : marks) {
    found.push_back(joined(m.value, " comes ", m.count, " times in column ", spelled(sheet.names()[m.column]),
                           ", far from its other numbers, ", m.low, " to ", m.high));
    for (const std::string& word : m.spellings) {
      if (std::find(added.begin(), added.end(), word) != added.end()) continue;
      added.push_back(word), all.push_back(spelled(word));
    }
  }
  const std::vector<std::string> others = columns_with(sheet, columns, marks, added);
  return joined(list_text(found, kMostNamed, "; "), "; if such a number means that a value is missing: \"missing_words\": [",
                list_text(all, all.size()), "]", rule.empty() ? "" : ", " + rule,
                others.empty() ? "" : ", which would be missing in " + list_text(others, kMostNamed) + ", too");
}

std::string warn_of_dates(const CsvSheet& sheet, const std::vector<size_t>& columns, const std::vector<std::string>& dates) {
  std::vector<std::string> days, months, all;
  for (const size_t c : columns) {
    if (are_digits_of_dates(sheet, c, 8)) days.push_back(spelled(sheet.names()[c]));
    if (are_digits_of_dates(sheet, c, 6)) months.push_back(spelled(sheet.names()[c]));
  }
  if (days.empty() && months.empty()) return "";
  for (const std::string& date : dates) all.push_back(spelled(date));
  const auto text = [](const std::vector<std::string>& names, const char* form) {
    return names.empty() ? "" : joined("column ", list_text(names, kMostNamed), names.size() == 1 ? " has " : " have ", form);
  };
  all.insert(all.end(), days.begin(), days.end()), all.insert(all.end(), months.begin(), months.end());
  return joined(text(days, "dates such as 20240131"), days.empty() || months.empty() ? "" : "; ",
                text(months, "months such as 202401"),
                ", read as numbers, which have gaps at the end of each month or year; \"dates\": [", list_text(all, all.size()),
                "] reads dates", months.empty() ? "" : ", once the file has the months as 2024-01");
}

}  // namespace halfstep
