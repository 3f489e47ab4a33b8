// SPDX-License-Identifier: Apache-2.0
#include "framework/data/csv_table.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

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

CsvTable::CsvTable(const std::filesystem::path& path, char delimiter) : path_(path.string()), text_(read_file(path)) {
  parse(delimiter);
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

void CsvTable::parse(char delimiter) {
  size_t end = text_.size();  // of the last line with anything on it
  while (end > 0 && (text_[end - 1] == '\n' || text_[end - 1] == '\r' || text_[end - 1] == ' ')) --end;
  text_.resize(end);
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
        check<DataError>(at >= end || text_[at] == delimiter || text_[at] == '\n', kTable, path_, ':', line, ':', fields,
                         ": text follows a closing quote");
      } else {
        const size_t begin = at;
        while (at < end && text_[at] != delimiter && text_[at] != '\n') ++at;
        cell = trim(std::string_view(text_.data() + begin, at - begin));
      }
      cells_.push_back(cell);
      more = at < end && text_[at] == delimiter;
      if (at < end) ++at;
    }
    if (columns_ == 0) columns_ = fields;
    check<DataError>(fields == columns_, kTable, path_, ':', row_line, ':',
                     std::min(fields, columns_) + (fields > columns_ ? 1 : 0), ": a row must have ", columns_,
                     " fields like the first, got ", fields);
    lines_.push_back(row_line);
  }
}

bool parse_number(std::string_view cell, double& value) {
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error == std::errc::result_out_of_range && end == cell.data() + cell.size()) {
    // from_chars leaves the value alone; too small is as good as zero, too large is not finite.
    value = std::strtod(std::string(cell).c_str(), nullptr);
    return true;
  }
  return error == std::errc() && end == cell.data() + cell.size();
}

}  // namespace halfstep
