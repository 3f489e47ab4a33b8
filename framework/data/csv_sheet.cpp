// SPDX-License-Identifier: Apache-2.0
#include "framework/data/csv_sheet.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace halfstep {
namespace {

constexpr size_t kMaxShown = 500;

// Is the cell a number in `format`? Unless strictly: or a number in another format, or a date?
bool is_like_number(std::string_view cell, const CsvFormat& format, bool strictly) {
  double ignored;
  if (parse_number(cell, format, ignored)) return true;
  const CsvHint hint = strictly ? CsvHint() : number_hint(cell, format);
  return !hint.what.empty() && !hint.word;
}

// Is the first row a header? Empty: without numbers in the first two rows it cannot be detected.
std::optional<bool> find_header(const CsvTable& table, const CsvFormat& format) {
  bool strict = false, loose = false, below = false;
  for (size_t c = 0; c < table.columns(); ++c) {
    const bool like = is_like_number(table.cell(0, c), format, false);
    strict = strict || is_like_number(table.cell(0, c), format, true);
    loose = loose || like;
    if (table.rows() > 1) below = below || is_like_number(table.cell(1, c), format, like);
  }
  if (strict) return false;
  if (below || (table.rows() == 1 && !loose)) return true;
  return loose ? std::optional(false) : std::nullopt;
}

}  // namespace

CsvSheet::CsvSheet(const char* where, const std::filesystem::path& path, const CsvFormat& format, std::optional<bool> header)
    : where_(where), path_(path.string()), table_(path, format), format_(format) {
  format_.delimiter = table_.delimiter();
  const std::optional<bool> found = header ? header : find_header(table_, format_);
  has_header_ = found.value_or(false), guessed_ = !found;
  show_all();
  for (size_t c = 0; c < table_.columns(); ++c) names_.push_back(has_header_ ? std::string(table_.cell(0, c)) : std::to_string(c));
  check<DataError>(
      rows() > 0, where_, path_, ": the file has a header but no rows",
      header ? Help{"it must have a row for each sample"} : Help{"if its only row is a sample, say \"header\": false"});
}

void CsvSheet::keep(const std::vector<size_t>& rows) {
  std::vector<size_t> kept;
  for (const size_t r : rows) kept.push_back(rows_[r]);
  rows_ = std::move(kept);
}

void CsvSheet::show_all() {
  rows_.clear();
  for (size_t r = has_header_ ? 1 : 0; r < table_.rows(); ++r) rows_.push_back(r);
}

size_t CsvSheet::find(const std::string& what) const {
  const auto named = std::find(names_.begin(), names_.end(), what);
  if (const auto count = std::count(named, names_.end(), what); count > 1)
    fail<ConfigError>(where_, path_, " has ", count, " columns \"", what, "\", and one must be named",
                      Help{joined("give its number: \"", named - names_.begin(), "\" is the first of them")});
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

bool CsvSheet::is_number(size_t row, size_t column) const {
  double ignored;
  return parse_number(cell(row, column), format_, ignored);
}

double CsvSheet::number(size_t row, size_t column) const {
  const std::string_view given = cell(row, column);
  double value = 0;
  if (given.empty()) fail_at(row, column, "must be a number, but the cell is empty");
  const auto help = [&] {
    const std::string remedy = number_hint(given, format_).remedy;
    return remedy.empty() ? remedy : joined(Help{remedy});
  };
  if (!parse_number(given, format_, value)) fail_at(row, column, "must be a number, got \"", given.substr(0, 60), '"', help());
  if (!(std::abs(value) <= double(std::numeric_limits<float>::max())))
    fail_at(row, column, "must be finite in float32, got \"", given.substr(0, 60), '"', help());
  return value;
}

TargetScale scale_of_column(std::span<const double> values) {
  const double count = double(values.size());
  double sum = 0, squares = 0;
  for (double v : values) sum += v;
  const double mean = sum / count;
  for (double v : values) squares += (v - mean) * (v - mean);
  const double std = std::sqrt(squares / count);
  return {mean, std > 1e-12 * std::abs(mean) ? std : 1};
}

}  // namespace halfstep
