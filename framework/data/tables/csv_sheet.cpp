// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_sheet.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "framework/base/list_text.h"
#include "framework/data/tables/csv_header.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

constexpr size_t kMaxShown = 500;  // characters of a list of names

// Returns whether the first row has all these names, one of which is not a number.
bool has_names(const CsvTable& table, const std::vector<std::string>& named) {
  std::vector<std::string> first;
  for (size_t c = 0; c < table.columns(); ++c) first.emplace_back(table.cell(0, c));
  bool some = false;
  for (const std::string& name : named) {
    int64_t number = 0;
    if (name.empty() || parse_integer(name, number)) continue;
    if (find_name(first, name) < 0) return false;
    some = true;
  }
  return some;
}

std::string lines_of_repeats(const CsvTable& table) {
  std::vector<std::string> lines;
  for (const size_t row : table.repeats()) lines.push_back(std::to_string(table.line(row)));
  return (lines.size() == 1 ? "line " : "lines ") + list_text(lines, 5);
}

// Returns text for a warning: ", and 2 rows that are the same (lines 7 and 30)".
std::string repeats_text(const CsvTable& table) {
  const size_t n = table.repeats().size();
  return n == 0 ? "" : joined(", and ", n, n == 1 ? " row that is" : " rows that are", " the same (", lines_of_repeats(table), ")");
}

}  // namespace

CsvSheet::CsvSheet(const char* where, const std::filesystem::path& path, const CsvFormat& format, std::optional<bool> header,
                   bool each_row_alone, const std::vector<std::string>& named)
    : where_(where), path_(path.string()), table_(CsvTable::open(path, format)), format_(format), notes_(table_->notes()) {
  format_.delimiter = table_->delimiter();
  CsvHeader found = header ? CsvHeader{header} : find_header(*table_, format_);
  if (!found.is_present && has_names(*table_, named)) found.is_present = true;
  has_header_ = found.is_present.value_or(false);
  if (!found.why.empty())
    notes_.summary += joined(notes_.summary.empty() ? "" : "; ", "the first row is the header, since ", found.why,
                             " (\"header\": false: it is a sample)");
  is_header_unknown_ = !found.is_present;
  if (!found.doubtful.empty() || !found.is_present)
    notes_.warnings.push_back(joined("the first row was read as a sample",
                                     found.doubtful.empty() ? std::string()
                                                            : joined(", though its numbers from ", found.doubtful.substr(0, 40),
                                                                     " on rise evenly as names of columns do"),
                                     repeats_text(*table_), "; if it is a header, set \"header\": true (false: no warning)"));
  if (has_header_ && !each_row_alone) check_below_header(where_, *table_, format_, path_);
  leave_out_repeats();
  for (size_t c = 0; c < table_->columns(); ++c)
    names_.push_back(has_header_ ? std::string(table_->cell(0, c)) : std::to_string(c));
  check<DataError>(
      rows() > 0, where_, path_, ": the file has a header but no rows",
      header ? Help{"it must have a row for each sample"} : Help{"if its only row is a sample, say \"header\": false"});
}

// Drops rows that repeat the header, as in files joined together.
void CsvSheet::leave_out_repeats() {
  const std::vector<size_t>& repeats = table_->repeats();
  if (!has_header_ || repeats.empty()) return;
  size_t next = 0;
  for (size_t row = 1; row < table_->rows(); ++row)
    if (next < repeats.size() && repeats[next] == row)
      ++next;
    else
      first_rows_.push_back(row);
  check<DataError>(!first_rows_.empty(), where_, path_, ": the file has a header but no rows: each repeats it",
                   Help{"if they are samples, say \"header\": false"});
  rows_ = first_rows_;
  const bool one = repeats.size() == 1;
  notes_.summary += joined(notes_.summary.empty() ? "" : "; ", repeats.size(), one ? " row" : " rows", " left out, which ",
                           one ? "repeats" : "repeat", " the header (", lines_of_repeats(*table_), ')');
}

void CsvSheet::keep(const std::vector<size_t>& rows) {
  std::vector<size_t> kept;
  for (const size_t r : rows) kept.push_back(row_of(r));
  rows_ = std::move(kept);
}

size_t CsvSheet::find(const std::string& what) const {
  if (const int64_t named = find_name(names_, what); named >= 0) {
    const std::string key = text_key(what);
    const auto count = std::count_if(names_.begin(), names_.end(), [&](const std::string& n) { return text_key(n) == key; });
    check<ConfigError>(count == 1, where_, path_, " has ", count, " columns \"", what, "\", and one must be named",
                       Help{joined("give its number: \"", named, "\" is the first of them")});
    return size_t(named);
  }
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
    fail<ConfigError>(
        where_, path_, " has no column \"", what, "\"; its ", n, " columns are ", all,
        has_header_ ? std::string() : joined(Help{"the first row was read as a sample; \"header\": true takes it for names"}));
  }
  return size_t(index < 0 ? index + n : index);
}

bool CsvSheet::is_number(size_t row, size_t column) const {
  if (!std::isnan(plain_number(row, column))) return true;
  double ignored;
  return parse_number(cell(row, column), format_, ignored);
}

double CsvSheet::number(size_t row, size_t column) const {
  constexpr double kMost = std::numeric_limits<float>::max();
  if (const double plain = plain_number(row, column); std::abs(plain) <= kMost) return plain;
  const std::string_view given = cell(row, column);
  double value = 0;
  if (given.empty()) fail_at(row, column, "must be a number, but the cell is empty");
  const auto help = [&] {
    const std::string remedy = number_hint(given, format_).remedy;
    return remedy.empty() ? remedy : joined(Help{remedy});
  };
  CsvNumberForm form;
  if (!parse_number(given, format_, value, form))
    fail_at(row, column, "must be a number, got \"", given.substr(0, 60), '"', help());
  if (!(std::abs(value) <= kMost)) fail_at(row, column, "must be finite in float32, got \"", given.substr(0, 60), '"', help());
  if (form.what) {
    UnusualNumbers& numbers = unusual_numbers_[form.what];
    if (numbers.count++ == 0) numbers.first = joined(halfstep::spelled(given.substr(0, 60)), ", which is ", value);
  }
  if (!form.currency.empty()) {
    const auto [first, is_new] = currencies_.try_emplace(column, form.currency);
    if (!is_new && first->second != form.currency)
      fail_at(row, column, "must have one currency, got ", halfstep::spelled(given.substr(0, 60)), " after numbers in ",
              first->second, Help{"convert the numbers, and leave the signs out"});
  }
  return value;
}

std::string CsvSheet::number_forms() const {
  std::string out;
  for (const auto& [what, numbers] : unusual_numbers_)
    out += joined(out.empty() ? "" : "; ", numbers.count, numbers.count == 1 ? " number" : " numbers", " with ", what, ", such as ",
                  numbers.first);
  return out;
}

ColumnScale scale_of_column(std::span<const double> values) {
  const double count = double(values.size());
  double sum = 0, squares = 0;
  for (double v : values) sum += v;
  const double mean = sum / count;
  for (double v : values) squares += (v - mean) * (v - mean);
  const double std = std::sqrt(squares / count);
  constexpr double kRounding = 1e-12;  // of a constant, relative to it
  return {mean, std > kRounding * std::abs(mean) ? std : 1};
}

}  // namespace halfstep
