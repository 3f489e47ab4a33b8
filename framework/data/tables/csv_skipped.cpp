// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_skipped.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/base/number_text.h"
#include "framework/data/formats/text_file.h"
#include "framework/data/tables/csv_table.h"
#include "framework/data/tables/labels.h"

namespace halfstep {
namespace {

constexpr const char* kSkipped = "CSV";
using Cells = std::vector<std::string>;

bool is_gap(char c) { return c == ' ' || c == '\t'; }

// Takes a quoted cell from the front. Returns false if its end is in another line.
bool take_quoted(std::string_view line, size_t& at, std::string& cell) {
  for (++at; at < line.size(); ++at) {
    if (line[at] != '"') {
      cell += line[at];
    } else if (at + 1 < line.size() && line[at + 1] == '"') {
      cell += line[++at];
    } else {
      return ++at, true;
    }
  }
  return false;
}

// Splits a line into cells. Returns nothing for one that does not end there.
std::optional<Cells> cells_of(std::string_view line, char delimiter) {
  const bool by_blanks = delimiter == kCsvBlanks;
  const auto separates = [&](char c) { return by_blanks ? is_gap(c) : c == delimiter; };
  while (!line.empty() && (line.back() == '\r' || (by_blanks && is_gap(line.back())))) line.remove_suffix(1);
  Cells out;
  size_t at = 0;
  for (bool more = true; more; ++at) {
    while (at < line.size() && is_gap(line[at]) && (by_blanks || line[at] != delimiter)) ++at;
    std::string cell;
    if (at < line.size() && line[at] == '"' && !take_quoted(line, at, cell)) return {};
    for (; at < line.size() && !separates(line[at]); ++at) cell += line[at];
    while (!cell.empty() && is_gap(cell.back())) cell.pop_back();
    out.push_back(std::move(cell));
    more = at < line.size();
  }
  return out;
}

// Returns these lines of a text.
std::map<int64_t, std::string> lines_of(std::string_view text, const std::vector<int64_t>& numbers) {
  const char end = text.find('\n') == text.npos ? '\r' : '\n';
  std::map<int64_t, std::string> out;
  const int64_t last = *std::max_element(numbers.begin(), numbers.end());
  size_t at = 0;
  for (int64_t line = 1; line <= last && at < text.size(); ++line) {
    const size_t stop = std::min(text.size(), text.find(end, at));
    if (std::find(numbers.begin(), numbers.end(), line) != numbers.end()) out[line] = std::string(text.substr(at, stop - at));
    at = stop + 1;
  }
  return out;
}

// What the model reads from the columns of a table.
class Judge {
 public:
  Judge(const CsvTable& table, const CsvFormat& format, std::optional<bool> header, const std::vector<CsvEncoding::Column>& columns)
      : width_(table.columns()), format_(format) {
    Cells first;
    for (size_t c = 0; c < width_; ++c) first.emplace_back(table.cell(0, c));
    has_header_ = header ? *header : !std::any_of(first.begin(), first.end(), [&](const std::string& c) { return is_number(c); });
    first_line_ = table.line(0);
    for (const CsvEncoding::Column& column : columns) {
      int64_t place = has_header_ ? find_name(first, column.name) : -1;
      if (place < 0 && parse_integer(column.name, place) && place < 0) place += int64_t(width_);
      if (place >= 0 && place < int64_t(width_)) places_.push_back({size_t(place), &column});
    }
  }

  bool is_record(int64_t line, std::string_view text) const {
    if (has_header_ && line < first_line_) return false;
    const std::optional<Cells> cells = cells_of(text, format_.delimiter);
    if (!cells) return true;
    if (is_total(*cells)) return false;
    const auto numbers = std::count_if(cells->begin(), cells->end(), [&](const std::string& c) { return is_number(c); });
    if (cells->size() != width_) return numbers > 1 || (numbers > 0 && has_category(*cells));  // of a row that lacks cells
    return numbers > 0 || has_category(*cells) || !has_unit(*cells);
  }

 private:
  // Returns whether the cell is a number or a date, in any form.
  bool is_number(const std::string& cell) const {
    double value = 0;
    if (parse_number(cell, format_, value)) return std::isfinite(value);
    const CsvHint hint = number_hint(cell, format_);
    return !hint.word && !hint.what.empty();
  }

  static bool is_total(const Cells& cells) {
    constexpr std::string_view kWords[] = {"total", "subtotal", "grand total", "sum", "gesamt", "mean", "average", "mittel"};
    const auto first = std::find_if(cells.begin(), cells.end(), [](const std::string& c) { return !c.empty(); });
    if (first == cells.end()) return false;
    const std::string word = lower_case(*first);
    return std::any_of(std::begin(kWords), std::end(kWords), [&](std::string_view w) { return word.starts_with(w); });
  }

  bool is_missing(const std::string& cell) const { return cell.empty() || number_hint(cell, format_).word; }

  bool has_category(const Cells& cells) const {
    return std::any_of(places_.begin(), places_.end(), [&](const Place& p) {
      return p.column < cells.size() && !is_missing(cells[p.column]) &&
             find_label(p.read->categories, cells[p.column], format_.decimal) >= 0;
    });
  }

  // Returns whether a column of numbers or dates has a text that may be a unit: no error of a spreadsheet, "#REF!", and no number
  // with a unit.
  bool has_unit(const Cells& cells) const {
    return std::any_of(places_.begin(), places_.end(), [&](const Place& p) {
      const std::string& cell = cells[p.column];
      return p.read->categories.empty() && !is_missing(cell) && cell[0] != '#' && !is_digit(cell[cell[0] == '-' ? 1 : 0]);
    });
  }

  struct Place {
    size_t column;
    const CsvEncoding::Column* read;
  };
  size_t width_;
  CsvFormat format_;  // with the delimiter that was found
  bool has_header_ = false;
  int64_t first_line_ = 1;
  std::vector<Place> places_;
};

}  // namespace

std::vector<int64_t> lines_without_record(const std::filesystem::path& path, const CsvFormat& given, std::optional<bool> header,
                                          const std::vector<int64_t>& lines, const std::vector<CsvEncoding::Column>& columns) {
  if (lines.empty()) return {};
  CsvFormat format = given;
  format.skip_rows = lines;
  try {
    auto table = CsvTable::open(path, format);
    if (table->columns() == 1 && format.delimiter != 0) format.delimiter = 0, table = CsvTable::open(path, format);
    format.delimiter = table->delimiter();
    const Judge judge(*table, format, header, columns);
    DataNotes ignored;
    const FileText text = open_text_file(path, format.encoding, kSkipped, true, ignored);
    std::vector<int64_t> out;
    for (const auto& [line, written] : lines_of(text.text, lines))
      if (!judge.is_record(line, written)) out.push_back(line);
    return out;
  } catch (const DataError&) { return lines; }
}

}  // namespace halfstep
