// SPDX-License-Identifier: Apache-2.0
#include "framework/data/csv_table.h"

#include <algorithm>
#include <array>

#include "framework/base/check.h"
#include "framework/io/atomic_file.h"

namespace halfstep {
namespace {

constexpr const char* kTable = "CSV";

std::string_view trim(std::string_view s) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!s.empty() && space(s.front())) s.remove_prefix(1);
  while (!s.empty() && space(s.back())) s.remove_suffix(1);
  return s;
}

}  // namespace

CsvTable::CsvTable(const std::filesystem::path& path, const CsvFormat& format)
    : path_(path.string()), text_(read_file(path)), delimiter_(format.delimiter) {
  check<DataError>(!text_.starts_with("\xff\xfe") && !text_.starts_with("\xfe\xff"), kTable, path_, ": the text is UTF-16",
                   Help{"save it as UTF-8"});
  size_t end = text_.size();  // of the last line with anything on it
  while (end > 0 && (text_[end - 1] == '\n' || text_[end - 1] == '\r' || text_[end - 1] == ' ')) --end;
  text_.resize(end);
  if (text_.find('\n') == std::string::npos) std::replace(text_.begin(), text_.end(), '\r', '\n');  // as old Macs end lines
  if (delimiter_ == 0) find_delimiter(format);
  parse();
}

void CsvTable::find_delimiter(const CsvFormat& format) {
  constexpr std::string_view kDelimiters = ",;\t|";
  using Counts = std::array<size_t, kDelimiters.size()>;
  size_t at = 0;
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
  const Counts first = count_line(), second = at < text_.size() ? count_line() : first;
  std::string there, as_often;
  for (size_t i = 0; i < kDelimiters.size(); ++i) {
    if (first[i] > 0) there += kDelimiters[i];
    if (first[i] > 0 && first[i] == second[i]) as_often += kDelimiters[i];
  }
  if (there.size() > 1 && as_often.size() == 1) there = as_often;
  check<DataError>(there.size() <= 1, kTable, path_, ":1: the first line has more than one of comma, semicolon, tab and |, ",
                   "so the delimiter is ambiguous", Help{"set it, for example \"delimiter\": \";\""});
  delimiter_ = there.empty() ? ',' : there[0];
}

std::string CsvTable::where(size_t row, size_t column) const {
  return path_ + ':' + std::to_string(lines_[row]) + ':' + std::to_string(column + 1);
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

void CsvTable::parse() {
  const size_t end = text_.size();
  size_t at = text_.rfind("\xef\xbb\xbf", 0) == 0 ? 3 : 0;  // a byte order mark
  check<DataError>(at < end, kTable, path_, ": the file has no rows");
  for (int64_t line = 1; at < end; ++line) {
    const int64_t row_line = line;
    size_t fields = 0;
    for (bool more = true; more;) {
      ++fields;
      std::string_view cell;
      if (at < end && text_[at] == '"') {
        cell = quoted(at, line, fields);
        while (at < end && (text_[at] == '\r' || text_[at] == ' ')) ++at;
        check<DataError>(at >= end || text_[at] == delimiter_ || text_[at] == '\n', kTable, path_, ':', line, ':', fields,
                         ": text follows a closing quote");
      } else {
        const size_t begin = at;
        while (at < end && text_[at] != delimiter_ && text_[at] != '\n') ++at;
        cell = trim(std::string_view(text_.data() + begin, at - begin));
      }
      cells_.push_back(cell);
      more = at < end && text_[at] == delimiter_;
      if (at < end) ++at;
    }
    if (columns_ == 0) columns_ = fields;
    check<DataError>(fields == columns_, kTable, path_, ':', row_line, ':',
                     std::min(fields, columns_) + (fields > columns_ ? 1 : 0), ": a row must have ", columns_,
                     " fields like the first, got ", fields);
    lines_.push_back(row_line);
  }
}

}  // namespace halfstep
