// SPDX-License-Identifier: Apache-2.0
#include "framework/data/csv_sheet.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace halfstep {
namespace {

constexpr size_t kMaxShown = 500;

bool has_number(const CsvTable& table, size_t row) {
  double ignored;
  for (size_t c = 0; c < table.columns(); ++c) {
    if (parse_number(table.cell(row, c), ignored)) return true;
  }
  return false;
}

}  // namespace

bool parse_integer(std::string_view s, int64_t& value) {
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  return error == std::errc() && end == s.data() + s.size();
}

CsvSheet::CsvSheet(const char* where, const std::filesystem::path& path, char delimiter, std::optional<bool> header)
    : where_(where), path_(path.string()), table_(path, delimiter) {
  has_header_ = header.value_or(table_.rows() > 1 && !has_number(table_, 0) && has_number(table_, 1));
  for (size_t r = has_header_ ? 1 : 0; r < table_.rows(); ++r) rows_.push_back(r);
  for (size_t c = 0; c < table_.columns(); ++c) names_.push_back(has_header_ ? std::string(table_.cell(0, c)) : std::to_string(c));
  check<DataError>(rows() > 0, where_, path_, ": the file has a header but no rows");
}

void CsvSheet::keep(const std::vector<size_t>& rows) {
  std::vector<size_t> kept;
  for (const size_t r : rows) kept.push_back(rows_[r]);
  rows_ = std::move(kept);
}

size_t CsvSheet::find(const std::string& what) const {
  const auto named = std::find(names_.begin(), names_.end(), what);
  if (named != names_.end()) return size_t(named - names_.begin());
  const int64_t n = int64_t(names_.size());
  int64_t index = 0;
  if (!parse_integer(what, index) || index < -n || index >= n) {
    std::string all;
    for (const std::string& name : names_) {
      if (all.size() > kMaxShown) {
        all += ", ...";
        break;
      }
      all += (all.empty() ? "" : ", ") + name.substr(0, kMaxShown);
    }
    fail<ConfigError>(where_, path_, " has no column \"", what, "\"; its ", n, " columns are ", all);
  }
  return size_t(index < 0 ? index + n : index);
}

double CsvSheet::number(size_t row, size_t column) const {
  const std::string_view given = cell(row, column);
  double value = 0;
  if (given.empty()) fail_at(row, column, "must be a number, but the cell is empty");
  if (!parse_number(given, value)) fail_at(row, column, "must be a number, got \"", given.substr(0, 60), '"');
  if (!(std::abs(value) <= double(std::numeric_limits<float>::max())))
    fail_at(row, column, "must be finite in float32, got \"", given.substr(0, 60), '"');
  return value;
}

}  // namespace halfstep
