// SPDX-License-Identifier: Apache-2.0
#include "framework/data/csv_table.h"

#include <algorithm>
#include <array>

#include "framework/base/check.h"
#include "framework/data/labels.h"
#include "framework/data/unicode.h"

namespace halfstep {
namespace {

constexpr const char* kTable = "CSV";
constexpr size_t kMostRepeats = 200;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trim(std::string_view s) {
  while (!s.empty() && is_blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_blank(s.back())) s.remove_suffix(1);
  return s;
}

// Some of a cell, with the first byte that is no text.
std::string_view around(std::string_view cell) {
  const size_t at = std::min({find_not_utf8(cell), cell.find('\0'), cell.size()});
  return cell.substr(at - std::min<size_t>(at, 20), 24);
}

}  // namespace

CsvTable::CsvTable(const std::filesystem::path& path, const CsvFormat& format)
    : path_(path.string()),
      text_(read_text_file(path, format.encoding, kTable, /*tables=*/true, notes_)),
      skipped_(format.skip_rows),
      delimiter_(format.delimiter) {
  std::sort(skipped_.begin(), skipped_.end());
  skipped_.erase(std::unique(skipped_.begin(), skipped_.end()), skipped_.end());
  size_t end = text_.size();  // of the last line with anything on it
  while (end > 0 && (text_[end - 1] == '\n' || text_[end - 1] == '\r' || text_[end - 1] == ' ')) --end;
  text_.resize(end);
  if (text_.find('\n') == std::string::npos) std::replace(text_.begin(), text_.end(), '\r', '\n');  // as old Macs end lines
  std::vector<std::string_view> left_out;
  skip_lines(begin_, first_line_, &left_out);
  read_separator(left_out);
  if (delimiter_ == 0) find_delimiter(format);
  parse(left_out);
  check_cells();
  if (!skipped_.empty()) note_skipped(left_out);
}

// Excel's first line "sep=;".
void CsvTable::read_separator(std::vector<std::string_view>& left_out) {
  const std::string_view line = trim(std::string_view(text_).substr(begin_, text_.find('\n', begin_) - begin_));
  const std::string_view word = line.substr(0, 4);
  if (line.size() > 5 || (word != "sep=" && word != "SEP=" && word != "Sep=")) return;
  if (delimiter_ == 0) delimiter_ = line.size() == 5 ? line[4] : '\t';  // a tab at the end was trimmed
  begin_ = std::min(text_.size(), text_.find('\n', begin_));
  if (begin_ < text_.size()) ++begin_;
  skip_lines(begin_, ++first_line_, &left_out);
}

// Passes the lines at the beginning of a row that are to be left out.
void CsvTable::skip_lines(size_t& at, int64_t& line, std::vector<std::string_view>* left_out) const {
  for (; !skipped_.empty() && at < text_.size() && std::binary_search(skipped_.begin(), skipped_.end(), line); ++line) {
    const size_t end = std::min(text_.size(), text_.find('\n', at));
    if (left_out) left_out->push_back(trim(std::string_view(text_).substr(at, end - at)));
    at = std::min(text_.size(), end + 1);
  }
}

// Says what was left out, and which lines were not there.
void CsvTable::note_skipped(const std::vector<std::string_view>& left_out) {
  constexpr size_t kShown = 60;
  if (!left_out.empty())
    notes_.made +=
        joined(notes_.made.empty() ? "" : "; ", left_out.size(), left_out.size() == 1 ? " line" : " lines",
               " left out by skip_rows: ", halfstep::spelled(left_out[0].substr(0, kShown)), left_out.size() > 1 ? ", ..." : "");
  if (left_out.size() < skipped_.size())
    notes_.warnings.push_back(joined("skip_rows has ", skipped_.size() - left_out.size(), " of ", skipped_.size(),
                                     " lines that the file does not have, or that do not begin a row"));
}

void CsvTable::find_delimiter(const CsvFormat& format) {
  constexpr std::string_view kDelimiters = ",;\t|";
  using Counts = std::array<size_t, kDelimiters.size()>;
  size_t at = begin_;
  const auto count_line = [&] {
    Counts out{};
    bool quoted = false;
    for (; at < text_.size() && (quoted || text_[at] != '\n'); ++at) {
      const size_t which = kDelimiters.find(text_[at]);
      if (text_[at] == '"') quoted = !quoted;
      if (quoted || which == std::string_view::npos || text_[at] == format.thousands) continue;
      if (text_[at] != ',' || format.decimal != ',') ++out[which];
    }
    ++at;
    return out;
  };
  const Counts first = count_line();
  int64_t line = first_line_ + 1;
  skip_lines(at, line);
  const Counts second = at < text_.size() ? count_line() : first;
  std::string there, as_often;
  for (size_t i = 0; i < kDelimiters.size(); ++i) {
    if (first[i] > 0) there += kDelimiters[i];
    if (first[i] > 0 && first[i] == second[i]) as_often += kDelimiters[i];
  }
  if (there.size() > 1 && as_often.size() == 1) there = as_often;
  if ((there.empty() || there == "\t") && are_blanks_delimiters(format, !there.empty())) {
    delimiter_ = kCsvBlanks;
    notes_.made += joined(notes_.made.empty() ? "" : "; ", "columns are separated by blanks");
    return;
  }
  check<DataError>(there.size() <= 1, kTable, path_, ':', first_line_,
                   ": the first line has more than one of comma, semicolon, tab and |, so the delimiter is ambiguous",
                   Help{"set it, for example \"delimiter\": \";\""});
  delimiter_ = there.empty() ? ',' : there[0];
}

// Do blanks make the same number of cells, more than one, of every line, in a file without another delimiter? tabs: the first line
// has one, which counts as a blank if there are several blanks in a row.
bool CsvTable::are_blanks_delimiters(const CsvFormat& format, bool tabs) const {
  if (format.thousands == ' ') return false;
  size_t wanted = 0;
  bool run = false;
  int64_t line = first_line_;
  for (size_t at = begin_; at < text_.size(); ++at, ++line) {
    skip_lines(at, line);
    if (at >= text_.size()) break;
    size_t cells = 0;
    bool quoted = false;
    for (char before = ' '; at < text_.size() && (quoted || text_[at] != '\n'); before = text_[at++]) {
      const char c = text_[at];
      if (!quoted && ((c == ',' && format.decimal != ',') || c == ';' || c == '|')) return false;
      if (!quoted && is_blank(before) && !is_blank(c)) ++cells;
      run = run || (!quoted && cells > 0 && c == ' ' && before == ' ');
      if (c == '"') quoted = !quoted;
    }
    if (wanted == 0) wanted = cells;
    if (cells != wanted || cells < 2 || (tabs && !run)) return false;
  }
  return wanted > 1;
}

std::string CsvTable::where(size_t row, size_t column) const {
  return path_ + ':' + std::to_string(lines_[row]) + ':' + std::to_string(column + 1);
}

std::string_view CsvTable::spelled(size_t row, size_t column) const {
  const auto found = with_blanks_.find(row * columns_ + column);
  return found == with_blanks_.end() ? cell(row, column) : found->second;
}

// A cell that begins with a quote at text_[at]; leaves `at` after the closing one.
std::string_view CsvTable::quoted(size_t& at, int64_t& line, size_t field) {
  const int64_t first = line;
  const size_t begin = ++at;
  bool doubled = false;
  for (;; ++at) {
    check<DataError>(at < text_.size(), kTable, path_, ':', first, ':', field, ": a quote is opened but not closed");
    if (text_[at] == '\n') ++line;
    if (text_[at] != '"') continue;
    if (at + 1 == text_.size() || text_[at + 1] != '"') break;
    doubled = true;
    ++at;
  }
  const std::string_view raw(text_.data() + begin, at++ - begin);
  if (!doubled) return raw;
  std::string& plain = unquoted_.emplace_back();
  for (size_t i = 0; i < raw.size(); ++i) {
    plain += raw[i];
    if (raw[i] == '"') ++i;
  }
  return plain;
}

// Most cells begin and end in a plain character.
void CsvTable::add(std::string_view cell) {
  const auto plain = [](char c) { return uint8_t(c) > 0x20 && uint8_t(c) < 0x7f; };
  if (!cell.empty() && !(plain(cell.front()) && plain(cell.back()))) {
    const std::string_view bare = without_blanks(cell);
    if (bare.size() < cell.size()) with_blanks_[cells_.size()] = cell;
    cell = bare;
  }
  cells_.push_back(cell);
}

void CsvTable::end_row(size_t fields, int64_t line) {
  if (columns_ == 0) {
    columns_ = fields;
    const size_t lines = size_t(std::count(text_.begin(), text_.end(), '\n')) + 1;
    cells_.reserve(std::min(columns_ * lines, text_.size() + 1));  // a cell takes a byte at least
    lines_.reserve(lines);
  }
  lines_.push_back(line);
  if (fields != columns_) check_cells();  // what is no text may look like rows of other lengths
  check<DataError>(fields == columns_, kTable, path_, ':', line, ':', std::min(fields, columns_) + (fields > columns_ ? 1 : 0),
                   ": a row must have ", columns_, " fields like the first, got ", fields);
  const auto row = cells_.end() - std::ptrdiff_t(fields);
  if (*row == cells_[0] && rows() > 1 && repeats_.size() < kMostRepeats && std::equal(row, cells_.end(), cells_.begin()))
    repeats_.push_back(rows() - 1);
}

void CsvTable::parse(std::vector<std::string_view>& left_out) {
  const size_t end = text_.size();
  const bool by_blanks = delimiter_ == kCsvBlanks;
  const auto pass_blanks = [&](size_t at) {
    while (by_blanks && at < end && is_blank(text_[at])) ++at;
    return at;
  };
  const auto ends = [&](char c) { return c == '\n' || (by_blanks ? is_blank(c) : c == delimiter_); };
  size_t at = begin_;
  check<DataError>(at < end, kTable, path_, ": the file has no rows");
  for (int64_t line = first_line_; at < end; ++line) {
    skip_lines(at, line, &left_out);
    if (at >= end) break;
    const int64_t row_line = line;
    size_t fields = 0;
    at = pass_blanks(at);
    for (bool more = true; more;) {
      ++fields;
      if (at < end && text_[at] == '"') {
        add(quoted(at, line, fields));
        while (!by_blanks && at < end && (text_[at] == '\r' || text_[at] == ' ')) ++at;
        check<DataError>(at >= end || ends(text_[at]), kTable, path_, ':', line, ':', fields, ": text follows a closing quote");
      } else {
        const size_t begin = at;
        if (by_blanks)
          while (at < end && !ends(text_[at])) ++at;
        else
          while (at < end && text_[at] != delimiter_ && text_[at] != '\n') ++at;
        add(trim(std::string_view(text_.data() + begin, at - begin)));
      }
      at = pass_blanks(at);
      more = at < end && (by_blanks ? text_[at] != '\n' : text_[at] == delimiter_);
      if (at < end && !(by_blanks && more)) ++at;
    }
    end_row(fields, row_line);
  }
  check<DataError>(rows() > 0, kTable, path_, ": skip_rows leaves no rows");
}

// What is read must be text that can be stored and read again.
void CsvTable::check_cells() const {
  const size_t wrong = find_not_utf8(text_);
  if (wrong == text_.npos && text_.find('\0') == text_.npos) return;
  const std::string name = std::filesystem::path(path_).filename().string();
  for (size_t i = 0; i < cells_.size(); ++i) {
    const size_t row = std::min(i / columns_, rows() - 1), column = i - row * columns_;
    const std::string_view cell = spelled(row, column);
    const bool utf8 = find_not_utf8(cell) == cell.npos;
    if (utf8 && cell.find('\0') == cell.npos) continue;
    const std::string place = where(row, column), shown = halfstep::spelled(around(cell));
    check<DataError>(utf8, kTable, place, ": the text must be UTF-8, got ", shown, Help{not_utf8_help(text_, wrong, path_)});
    fail<DataError>(kTable, place, ": a cell must not hold a NUL character, got ", shown,
                    Help{joined("tr -d '\\000' < ", name, " > new-", name, " removes them")});
  }
}

}  // namespace halfstep
