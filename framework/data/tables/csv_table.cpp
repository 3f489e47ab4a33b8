// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "framework/base/check.h"
#include "framework/base/number_text.h"
#include "framework/data/formats/read_once.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tokens/unicode.h"
#include "framework/io/files/free_memory.h"

namespace halfstep {
namespace {

constexpr const char* kTable = "CSV";
constexpr size_t kMostRepeats = 100'000;  // of the first row that are listed

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Returns the part of a cell around its first byte that is not text.
std::string_view around_fault(std::string_view cell) {
  constexpr size_t kBefore = 20, kShown = 24;  // bytes before the fault, and in all
  const size_t at = std::min({find_not_utf8(cell), cell.find('\0'), cell.size()});
  return cell.substr(at - std::min(at, kBefore), kShown);
}

}  // namespace

CsvTable::CsvTable(const std::filesystem::path& path, const CsvFormat& format)
    : path_(path.string()),
      format_(format),
      file_(open_text_file(path, format.encoding, kTable, /*tables=*/true, notes_)),
      text_(file_.text),
      window_(text_, file_.mapped),
      skipped_(format.skip_rows),
      delimiter_(format.delimiter) {
  std::sort(skipped_.begin(), skipped_.end());
  skipped_.erase(std::unique(skipped_.begin(), skipped_.end()), skipped_.end());
  size_t end = text_.size();         // end of the last nonempty line
  constexpr char kEndOfFile = 0x1a;  // of DOS
  while (end > 0 && (text_[end - 1] == '\n' || text_[end - 1] == '\r' || text_[end - 1] == ' ' || text_[end - 1] == kEndOfFile))
    --end;
  if (text_.substr(0, end).find('\n') == text_.npos && text_.substr(0, end).find('\r') != text_.npos) {  // lines end as on old Macs
    auto own = std::make_shared<std::string>(text_.substr(0, end));
    std::replace(own->begin(), own->end(), '\r', '\n');
    text_ = *own, window_ = PageWindow(text_, false), file_ = {text_, own, false};
  }
  text_ = text_.substr(0, end);
  SkippedLines skipped;
  skip_lines(begin_, first_line_, true, &skipped);
  read_separator(skipped);
  if (delimiter_ == 0) find_delimiter(format);
  format_.delimiter = delimiter_;
  find_columns();
  parse(skipped);
  note_skipped(skipped);
}

std::shared_ptr<const CsvTable> CsvTable::open(const std::filesystem::path& path, const CsvFormat& f) {
  std::string key = file_stamp(path);
  if (!key.empty()) key += joined('\n', int(f.delimiter), ' ', f.decimal, ' ', int(f.thousands), ' ', int(f.encoding));
  for (const int64_t line : f.skip_rows) key += key.empty() ? "" : joined(' ', line);
  return ReadCache<const CsvTable>::get(key, [&] { return std::make_shared<const CsvTable>(path, f); });
}

// Reads Excel's first line "sep=;".
void CsvTable::read_separator(SkippedLines& skipped) {
  const std::string_view line = trim(text_.substr(begin_, text_.find('\n', begin_) - begin_));
  const std::string_view word = line.substr(0, 4);
  if (line.size() > 5 || (word != "sep=" && word != "SEP=" && word != "Sep=")) return;
  if (delimiter_ == 0) delimiter_ = line.size() == 5 ? line[4] : '\t';  // trimming removed a tab at the end
  begin_ = std::min(text_.size(), text_.find('\n', begin_));
  if (begin_ < text_.size()) ++begin_;
  skip_lines(begin_, ++first_line_, true, &skipped);
}

bool CsvTable::is_empty_line(size_t at) const {
  while (at < text_.size() && is_blank(text_[at]) && text_[at] != delimiter_) ++at;
  return at < text_.size() && text_[at] == '\n';
}

// Skips lines at the beginning of a row that are to be left out, and empty ones if `empty`.
void CsvTable::skip_lines(size_t& at, int64_t& line, bool empty, SkippedLines* skipped) const {
  for (; at < text_.size(); ++line) {
    const bool is_listed = !skipped_.empty() && std::binary_search(skipped_.begin(), skipped_.end(), line);
    if (!is_listed && !(empty && is_empty_line(at))) return;
    const size_t end = std::min(text_.size(), text_.find('\n', at));
    if (skipped && is_listed) skipped->lines.push_back(trim(text_.substr(at, end - at)));
    if (skipped && !is_listed) skipped->empty.push_back(line);
    at = std::min(text_.size(), end + 1);
  }
}

// Notes what was left out, and which lines are missing.
void CsvTable::note_skipped(const SkippedLines& skipped) {
  constexpr size_t kShown = 60;
  const auto& [lines, empty] = skipped;
  if (!lines.empty())
    notes_.summary +=
        joined(notes_.summary.empty() ? "" : "; ", lines.size(), lines.size() == 1 ? " line" : " lines",
               " left out by skip_rows: ", halfstep::spelled(lines[0].substr(0, kShown)), lines.size() > 1 ? ", ..." : "");
  if (lines.size() < skipped_.size())
    notes_.warnings.push_back(joined("skip_rows has ", skipped_.size() - lines.size(), " of ", skipped_.size(),
                                     " lines that the file does not have, or that do not begin a row"));
  if (!empty.empty())
    notes_.summary += joined(notes_.summary.empty() ? "" : "; ", empty.size(), empty.size() == 1 ? " empty line" : " empty lines",
                             " left out, ", empty.size() == 1 ? "line " : "the first is line ", empty[0]);
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
  skip_lines(at, line, true);
  const Counts second = at < text_.size() ? count_line() : first;
  std::string present, as_often;
  for (size_t i = 0; i < kDelimiters.size(); ++i) {
    if (first[i] > 0) present += kDelimiters[i];
    if (first[i] > 0 && first[i] == second[i]) as_often += kDelimiters[i];
  }
  if (present.size() > 1 && as_often.size() == 1) present = as_often;
  if ((present.empty() || present == "\t") && are_blanks_delimiters(format, !present.empty())) {
    delimiter_ = kCsvBlanks;
    notes_.summary += joined(notes_.summary.empty() ? "" : "; ", "columns are separated by blanks");
    return;
  }
  check<DataError>(present.size() <= 1, kTable, path_, ':', first_line_,
                   ": the first line has more than one of comma, semicolon, tab and |, so the delimiter is ambiguous",
                   Help{"set it, for example \"delimiter\": \";\""});
  delimiter_ = present.empty() ? ',' : present[0];
}

// Returns whether blanks split every line into the same number of cells, more than one, in a file without another delimiter. tabs:
// the first line has one, which counts as a blank if there are several blanks in a row.
bool CsvTable::are_blanks_delimiters(const CsvFormat& format, bool tabs) const {
  if (format.thousands == ' ') return false;
  size_t expected = 0;    // cells of the first line
  bool has_runs = false;  // of blanks
  int64_t line = first_line_;
  for (size_t at = begin_; at < text_.size(); ++at, ++line) {
    skip_lines(at, line, true);
    if (at >= text_.size()) break;
    size_t cells = 0;
    bool quoted = false;
    for (char before = ' '; at < text_.size() && (quoted || text_[at] != '\n'); before = text_[at++]) {
      const char c = text_[at];
      if (!quoted && ((c == ',' && format.decimal != ',') || c == ';' || c == '|')) return false;
      if (!quoted && is_blank(before) && !is_blank(c)) ++cells;
      has_runs = has_runs || (!quoted && cells > 0 && c == ' ' && before == ' ');
      if (c == '"') quoted = !quoted;
    }
    if (expected == 0) expected = cells;
    if (cells != expected || cells < 2 || (tabs && !has_runs)) return false;
  }
  return expected > 1;
}

int64_t CsvTable::line(size_t row) const {
  const auto after = std::upper_bound(jumps_.begin(), jumps_.end(), row, [](size_t r, const auto& jump) { return r < jump.first; });
  return int64_t(row) + std::prev(after)->second;
}

std::string CsvTable::where(size_t row, size_t column) const {
  return path_ + ':' + std::to_string(line(row)) + ':' + std::to_string(column + 1);
}

std::string_view CsvTable::bare(std::string_view cell) {
  const auto plain = [](char c) { return uint8_t(c) > 0x20 && uint8_t(c) < 0x7f; };  // as most cells begin and end
  return cell.empty() || (plain(cell.front()) && plain(cell.back())) ? cell : without_blanks(cell);
}

std::string_view CsvTable::spelled(size_t row, size_t column) const {
  if (number_of_[column] < 0) {
    window_.move_to(texts_[column][row].data());
    return texts_[column][row];
  }
  const size_t mark = column / kMarkStep, marks = (columns_ - 1) / kMarkStep;
  size_t at = begins_[row] + (mark > 0 ? marks_[row * marks + mark - 1] : 0);
  window_.move_to(text_.data() + at);
  int64_t ignored = 0;
  bool more = true;
  for (size_t c = mark * kMarkStep; c < column; ++c) read_cell(at, ignored, c, more);
  return read_cell(at, ignored, column, more);
}

// Reads a cell that begins with a quote at text_[at]; leaves `at` behind the closing quote.
std::string_view CsvTable::read_quoted(size_t& at, int64_t& line, size_t field) const {
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
  const auto [plain, is_new] = unquoted_.try_emplace(begin);
  for (size_t i = 0; i < raw.size() && is_new; ++i) {
    plain->second += raw[i];
    if (raw[i] == '"') ++i;
  }
  return plain->second;
}

size_t CsvTable::skip_blanks(size_t at) const {
  while (delimiter_ == kCsvBlanks && at < text_.size() && is_blank(text_[at])) ++at;
  return at;
}

// Returns where the cell at text_[at] begins: at its quote, if blanks before it and behind the closing one are all that is between
// two delimiters. Quotes that do not close in the line, or before other text, are text.
size_t CsvTable::begin_of_cell(size_t at) const {
  const size_t end = text_.size();
  const auto blank = [&](size_t i) { return i < end && is_blank(text_[i]) && text_[i] != delimiter_; };
  if (delimiter_ == kCsvBlanks || !blank(at)) return at;
  size_t quote = at;
  while (blank(quote)) ++quote;
  if (quote >= end || text_[quote] != '"') return at;
  for (size_t i = quote + 1; i < end && text_[i] != '\n'; ++i) {
    if (text_[i] != '"') continue;
    if (i + 1 < end && text_[i + 1] == '"') {
      ++i;
      continue;
    }
    do ++i;
    while (i < end && (text_[i] == '\r' || text_[i] == ' '));
    return i >= end || text_[i] == '\n' || text_[i] == delimiter_ ? quote : at;
  }
  return at;
}

// Reads the cell at text_[at]; leaves `at` at the next cell. more: whether that is in the same row.
std::string_view CsvTable::read_cell(size_t& at, int64_t& line, size_t field, bool& more) const {
  const bool by_blanks = delimiter_ == kCsvBlanks;
  const size_t end = text_.size();
  const auto ends = [&](char c) { return c == '\n' || (by_blanks ? is_blank(c) : c == delimiter_); };
  std::string_view out;
  at = begin_of_cell(at);
  if (at < end && text_[at] == '"') {
    out = read_quoted(at, line, field);
    while (!by_blanks && at < end && (text_[at] == '\r' || text_[at] == ' ')) ++at;
    check<DataError>(at >= end || ends(text_[at]), kTable, path_, ':', line, ':', field, ": text follows a closing quote");
  } else {
    const size_t begin = at;
    if (by_blanks)
      while (at < end && !ends(text_[at])) ++at;
    else
      while (at < end && text_[at] != delimiter_ && text_[at] != '\n') ++at;
    out = trim(text_.substr(begin, at - begin));
  }
  at = skip_blanks(at);
  more = at < end && (by_blanks ? text_[at] != '\n' : text_[at] == delimiter_);
  if (at < end && !(by_blanks && more)) ++at;
  return out;
}

// Returns the same for a number in plain digits, which is added to the column; does nothing for another cell. Before the last line
// end, digits cannot lead out of the text.
bool CsvTable::read_number(size_t& at, size_t column, std::string_view& cell, bool& more) {
  if (at > last_line_end_ || last_line_end_ == text_.npos) return false;
  const char* const begin = text_.data() + at;
  const char point = format_.decimal == delimiter_ ? '\n' : format_.decimal;
  CsvDecimal number;
  const char* after = read_decimal(begin, point, number);
  if (after == begin) return false;
  cell = std::string_view(begin, size_t(after - begin));
  if (after >= text_.data() + text_.size()) {
    at = text_.size(), more = false;
  } else if (delimiter_ == kCsvBlanks) {
    if (*after != '\n' && !is_blank(*after)) return false;
    at = skip_blanks(size_t(after - text_.data()));
    more = at < text_.size() && text_[at] != '\n';
    at += !more;
  } else {
    if (*after == '\r' && after[1] == '\n') ++after;
    more = *after == delimiter_;
    if (!more && *after != '\n') return false;
    at = size_t(after - text_.data()) + 1;
  }
  numbers_->add(size_t(number_of_[column]), number);
  return true;
}

// Adds a cell to the texts or numbers of its column.
void CsvTable::add(size_t column, std::string_view cell) {
  if (number_of_[column] < 0) return texts_[column].push_back(cell);
  double value = 0;
  const std::string_view text = bare(cell);
  // Numbers in other forms are read as text, and parsed by code that notes their form.
  const auto usual = [&](char c) {
    return is_digit(c) || c == '-' || c == '+' || c == 'e' || c == 'E' || c == format_.decimal || c == format_.thousands;
  };
  const bool plain = !text.empty() && (is_digit(text.back()) || text.back() == format_.decimal);
  const bool finite =
      plain && std::all_of(text.begin(), text.end(), usual) && parse_number(text, format_, value) && std::isfinite(value);
  numbers_->add(size_t(number_of_[column]), finite ? value : CsvNumbers::kNone);
}

// Finds the number of columns, and which of them have numbers.
void CsvTable::find_columns() {
  constexpr size_t kRows = 256;  // that are examined
  check<DataError>(begin_ < text_.size(), kTable, path_, ": the file has no rows");
  std::vector<bool> numeric;
  size_t rows = 0, at = begin_;
  for (int64_t line = first_line_; at < text_.size() && rows < kRows; ++line, ++rows) {
    skip_lines(at, line, columns_ > 1);
    if (at >= text_.size()) break;
    at = skip_blanks(at);
    size_t fields = 0;
    double ignored = 0;
    for (bool more = true; more; ++fields) {
      const std::string_view cell = bare(read_cell(at, line, fields + 1, more));
      if (rows == 0)
        first_row_.emplace_back(cell);
      else if (fields < columns_ && !numeric[fields])
        numeric[fields] = parse_number(cell, format_, ignored);
    }
    if (rows == 0) columns_ = fields, numeric.resize(fields);
    if (fields != columns_) break;  // parse() will refuse it
  }
  size_t numbers = 0;
  for (const bool is_number : numeric) number_of_.push_back(is_number ? int32_t(numbers++) : -1);
  numbers_.emplace(numbers);
  texts_.resize(columns_);
  const double share = double(text_.size() - begin_) / double(std::max<size_t>(1, at - begin_));
  constexpr double kMargin = 1.02;  // for rows that are shorter than the first ones
  const size_t estimated_rows = rows < kRows ? rows : size_t(kMargin * share * double(rows));
  const size_t row_bytes = 8 * numbers + sizeof(std::string_view) * (columns_ - numbers) + sizeof(size_t) + columns_ / 4;
  check_room(kTable, path_, estimated_rows * row_bytes, joined(estimated_rows, " rows of ", columns_, " columns"),
             "an array (.npy) is mapped, not read, so it may be larger than the memory: docs/configs.md");
  begins_.reserve(estimated_rows);
  marks_.reserve(estimated_rows * ((columns_ - 1) / kMarkStep));
  for (size_t c = 0; c < columns_; ++c)
    if (number_of_[c] < 0) texts_[c].reserve(estimated_rows);
}

// Reads the last row again, and rows after it.
CsvTable::RowsFrom CsvTable::rows_from_last() const {
  constexpr size_t kRows = 20;  // after the last
  RowsFrom out;
  size_t at = begins_.back();
  int64_t line = this->line(rows() - 1);
  try {
    for (size_t r = 0; r <= kRows; ++r, ++line) {
      if (r > 0) skip_lines(at, line, true);
      if (at >= text_.size()) break;
      at = skip_blanks(at);
      size_t fields = 0, numbers = 0;
      for (bool more = true; more; ++fields) {
        double ignored = 0;
        numbers += parse_number(bare(read_cell(at, line, fields + 1, more)), format_, ignored);
      }
      if (r == 0) out.fields = fields, out.numbers = numbers;
      out.as_long += fields == out.fields;
      out.with_numbers += numbers > 0;
      ++out.rows;
    }
  } catch (const DataError&) { ++out.rows; }  // an open quote
  return out;
}

// Returns the remedy for a last row of another length than the first; "": none is known.
std::string CsvTable::help_for_length(size_t fields) const {
  constexpr size_t kTitles = 5;
  const size_t row = rows() - 1;
  std::string_view here = text_.substr(begins_.back(), text_.find('\n', begins_.back()) - begins_.back());
  while (here.ends_with('\r') || here.ends_with(' ')) here.remove_suffix(1);
  const auto count = [&](char c) { return size_t(std::count(here.begin(), here.end(), c)); };
  const std::string between = delimiter_ == '\t' ? "\\t" : std::string(1, delimiter_);
  const bool blanks = delimiter_ == kCsvBlanks;
  for (const auto& [other, name] : {std::pair(',', ","), {';', ";"}, {'\t', "\\t"}, {'|', "|"}})
    if (fields == 1 && !blanks && other != delimiter_ && count(other) + 1 == columns_)
      return joined("the first line has \"", between, "\" between its cells, this one \"", name, '"');
  if (fields == columns_ + 1 && !blanks && here.ends_with(delimiter_))
    return joined("this row ends in \"", between, "\": let the first line do so, too, or none");
  const bool numbers = std::any_of(first_row_.begin(), first_row_.end(), [&](const std::string& cell) {
    double ignored = 0;
    return parse_number(cell, format_, ignored);
  });
  const RowsFrom from = fields > columns_ ? rows_from_last() : RowsFrom();
  // A title is one cell, above a table whose last lines may be no rows, or the long row is the header of all that follows.
  const bool is_table = columns_ == 1 ? 2 * from.as_long > from.rows : from.as_long == from.rows;
  const bool is_header = from.numbers == 0 && from.rows > 1 && from.with_numbers + 1 == from.rows;
  if (fields > columns_ && row <= kTitles && !numbers && is_table && (columns_ == 1 || is_header)) {
    std::string lines;
    for (size_t r = 0; r < row; ++r) lines += (r > 0 ? ", " : "") + std::to_string(line(r));
    return joined("\"skip_rows\": [", lines, "] leaves out what is above the header");
  }
  const bool last = here.data() + here.size() + 1 >= text_.data() + text_.size();
  if (fields < columns_ && last && row > 1)
    return joined("\"skip_rows\": [", line(row), "] leaves out the last line, if it is no row");
  if (fields > columns_ && from.numbers < fields && !blanks)
    return joined("a cell with \"", between, "\" in it needs quotes around it, \"a", between, " b\"");
  if (fields > columns_ || fields == 1 || blanks) return "";
  return joined("rows that end early are filled up, in Python: import pandas; pandas.read_csv(FILE, sep=\"", between,
                "\").to_csv(NEW, index=False)");
}

// Checks the row that has ended, and notes its line and whether it repeats the first one.
void CsvTable::end_row(size_t fields, int64_t line, std::string_view first) {
  const size_t row = rows() - 1;
  if (const int64_t jump = line - int64_t(row); jumps_.empty() || jumps_.back().second != jump) jumps_.emplace_back(row, jump);
  if (fields != columns_) check_cells(fields);  // binary data may look like rows of other lengths
  if (fields != columns_) {
    const std::string help = help_for_length(fields);
    fail<DataError>(kTable, path_, ':', line, ':', std::min(fields, columns_) + (fields > columns_ ? 1 : 0), ": a row must have ",
                    columns_, columns_ == 1 ? " field" : " fields", " like the first, got ", fields,
                    help.empty() ? help : joined(Help{help}));
  }
  numbers_->end_row();
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // of a file that was appended to another
  if (row == 0 || repeats_.size() >= kMostRepeats) return;
  if (bare(first.starts_with(kMark) ? first.substr(kMark.size()) : first) != first_row_[0]) return;
  for (size_t c = 1; c < columns_; ++c)
    if (cell(row, c) != first_row_[c]) return;
  repeats_.push_back(row);
}

void CsvTable::parse(SkippedLines& skipped) {
  constexpr size_t kPiece = 1 << 16;                   // bytes that are checked at a time
  const auto is_plain = [&](size_t from, size_t to) {  // ASCII without NUL
    uint8_t others = 0;
    for (size_t i = from; i < to; ++i) others |= uint8_t(uint8_t(text_[i] - 1) >= 0x7f);
    return others == 0;
  };
  last_line_end_ = file_.text.rfind('\n');  // may be behind text_
  bool all_plain = true;
  size_t at = begin_, checked = begin_;  // end of the checked bytes
  for (int64_t line = first_line_; at < text_.size(); ++line) {
    skip_lines(at, line, columns_ > 1, &skipped);
    if (at >= text_.size()) break;
    const int64_t row_line = line;
    at = skip_blanks(at);
    begins_.push_back(at);
    window_.move_to(text_.data() + at);
    size_t fields = 0;
    std::string_view cell, first;
    for (bool more = true; more; ++fields) {
      if (fields % kMarkStep == 0 && fields > 0 && fields < columns_) marks_.push_back(uint32_t(at - begins_.back()));
      const bool has_column = fields < columns_;
      if (!has_column || number_of_[fields] < 0 || !read_number(at, fields, cell, more)) {
        cell = read_cell(at, line, fields + 1, more);
        if (has_column) add(fields, cell);
      }
      if (fields == 0) first = cell;
    }
    end_row(fields, row_line, first);
    const size_t read = std::min(at, text_.size());
    if (read - checked < kPiece) continue;
    all_plain = all_plain && is_plain(checked, read);
    checked = read;
  }
  numbers_->finish();
  check<DataError>(rows() > 0, kTable, path_, ": skip_rows leaves no rows");
  if (!all_plain || !is_plain(checked, text_.size())) check_cells(columns_);
}

// Throws DataError for a cell that is not UTF-8 or has a NUL character, which could not be stored and read again.
void CsvTable::check_cells(size_t fields_of_last) const {
  const size_t wrong = find_not_utf8(text_);
  if (wrong == text_.npos && text_.find('\0') == text_.npos) return;
  const std::string name = std::filesystem::path(path_).filename().string();
  for (size_t row = 0; row < rows(); ++row) {
    size_t at = begins_[row];
    int64_t line = 0;
    bool more = true;
    for (size_t column = 0; column < (row + 1 < rows() ? columns_ : fields_of_last); ++column) {
      const std::string_view cell = read_cell(at, line, column, more);
      const bool utf8 = find_not_utf8(cell) == cell.npos;
      if (utf8 && cell.find('\0') == cell.npos) continue;
      const std::string place = where(row, column), shown = halfstep::spelled(around_fault(cell));
      check<DataError>(utf8, kTable, place, ": the text must be UTF-8, got ", shown, Help{not_utf8_help(text_, wrong, path_)});
      fail<DataError>(kTable, place, ": a cell must not hold a NUL character, got ", shown,
                      Help{joined("tr -d '\\000' < ", name, " > new-", name, " removes them")});
    }
  }
}

}  // namespace halfstep
