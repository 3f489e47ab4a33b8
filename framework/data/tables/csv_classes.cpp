// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_classes.h"

#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>

#include "framework/base/check.h"
#include "framework/data/tables/csv_columns.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

constexpr size_t kMaxClasses = 1000;

// Returns each row's class among those of the training data.

std::vector<int64_t> find_classes(const CsvSheet& sheet, size_t column, const std::vector<std::string>& classes) {
  std::unordered_map<std::string_view, int64_t> seen;
  std::vector<int64_t> out;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    const auto [at, is_new] = seen.try_emplace(sheet.cell(r, column));
    if (is_new) at->second = find_known(sheet, r, column, at->first, classes, "class");
    out.push_back(at->second);
  }
  return out;
}

}  // namespace

std::vector<int64_t> read_classes(const CsvSheet& sheet, size_t column, std::vector<std::string>& classes, DataNotes& notes) {
  if (!classes.empty()) return find_classes(sheet, column, classes);
  LabelSet labels(sheet.format().decimal);
  std::vector<size_t> label_of_row;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    const size_t before = labels.size();
    label_of_row.push_back(labels.add(sheet.spelled(r, column)));
    if (labels.size() == before) continue;
    const std::string_view cell = sheet.cell(r, column);
    double value = 0;
    if (parse_number(cell, sheet.format(), value) && !std::isfinite(value))
      sheet.fail_at(r, column, "must be a class, got ", spelled(cell),
                    Help{joined(R"("missing_words": [)", spelled(cell), "] leaves such rows out")});
    if (labels.size() > kMaxClasses)
      sheet.fail_at(r, column, "has more than ", kMaxClasses, " classes", Help{"for a number to predict, ask for regression"});
  }
  std::vector<int64_t> places, out;
  classes = labels.names(places);
  const std::string alike = labels.joined_spellings(), cases = labels.look_alike("classes");
  if (!alike.empty()) notes.summary += "; classes: " + alike;
  notes.summary += words_read_as_texts("classes", classes, sheet.format());
  if (!cases.empty()) notes.warnings.push_back(cases);
  for (const size_t label : label_of_row) out.push_back(places[label]);
  return out;
}

size_t drop_ignored(CsvSheet& sheet, size_t column, int64_t ignored, const std::vector<std::string>& classes) {
  std::vector<size_t> others;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    const double value = sheet.plain_number(r, column);
    if (value == double(ignored)) continue;
    if (!(value >= 0 && value == std::floor(value))) return 0;
    others.push_back(r);
  }
  const size_t all = sheet.rows();
  if (ignored >= 0 || others.empty() || others.size() == all || find_label(classes, std::to_string(ignored)) >= 0) return 0;
  sheet.keep(others);
  return all - others.size();
}

size_t drop_without_target(CsvSheet& sheet, size_t column, const std::vector<std::string>& missing_words, const std::string& path) {
  const size_t before = sheet.rows();
  std::vector<size_t> kept;
  const bool words_are_texts = are_texts(missing_words, sheet.format());
  const auto is_missing = [&](size_t r) {
    return !(words_are_texts && !std::isnan(sheet.plain_number(r, column))) &&
           is_missing_cell(sheet.cell(r, column), missing_words);
  };
  size_t r = 0;
  while (r < before && !is_missing(r)) ++r;
  if (r == before) return 0;
  for (size_t k = 0; k < r; ++k) kept.push_back(k);
  for (; r < before; ++r)
    if (!is_missing(r)) kept.push_back(r);
  check<DataError>(!kept.empty(), "CSV", path, ": no row has a target: column \"", sheet.names()[column], "\" is empty");
  sheet.keep(kept);
  return before - kept.size();
}

}  // namespace halfstep
