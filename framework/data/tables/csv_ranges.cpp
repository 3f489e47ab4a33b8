// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_ranges.h"

#include <algorithm>

#include "framework/base/check.h"
#include "framework/data/loading/equal_floats.h"
#include "framework/data/loading/far_values.h"

namespace halfstep {

void CsvRangeCheck::add(const CsvFeature& feature, size_t j, double value, int64_t number) {
  if (feature.categorical || j >= encoding_.low.size()) return;
  const double low = encoding_.low[j], high = encoding_.high[j];
  if (value >= low && value <= high) return;
  const auto example = [&] {
    return joined(feature.name, " is ", value, " in ", place_, ' ', number, ", where the training data ");
  };
  if (is_far(value, low, high)) {
    if (far_++ == 0) far_example_ = joined(example(), "has ", low, " to ", high);
  } else if (low == high) {
    if (untrained_++ == 0) untrained_example_ = joined(example(), "always has ", low);
  }
}

std::string CsvRangeCheck::far_text() const {
  if (far_ == 0) return "";
  return joined(far_, far_ == 1 ? " value is" : " values are", " far outside of the training data's, such as ", far_example_);
}

std::string CsvRangeCheck::untrained_text() const {
  if (untrained_ == 0) return "";
  return joined(untrained_, untrained_ == 1 ? " value differs" : " values differ",
                " in a column that is constant in the training data, of which the model has learnt nothing: ", untrained_example_);
}

void warn_of_ranges(const std::vector<CsvFeature>& features, const std::vector<int64_t>& rows, const CsvSheet& sheet,
                    const CsvEncoding& encoding, DataNotes& notes) {
  CsvRangeCheck ranges(encoding, "line");
  for (size_t j = 0; j < std::min(features.size(), encoding.low.size()); ++j)
    for (const int64_t row : rows) ranges.add(features[j], j, features[j].values[size_t(row)], sheet.line(size_t(row)));
  if (ranges.far() > 0) notes.warnings.push_back(ranges.far_text() + ": answers there may mean nothing");
  if (const std::string text = ranges.untrained_text(); !text.empty()) notes.warnings.push_back(text);
}

void warn_of_equal_floats(const std::vector<CsvFeature>& features, const std::vector<double>& targets,
                          const std::vector<int64_t>& rows, const CsvOptions& o, const CsvEncoding& encoding,
                          const ColumnScale& target_scale, DataNotes& notes) {
  for (size_t j = 0; j < features.size(); ++j) {
    if (features[j].categorical) continue;
    const ColumnScale scale = encoding.mean.empty() ? ColumnScale() : ColumnScale{encoding.mean[j], encoding.std[j]};
    const std::string text = equal_in_float(
        int64_t(rows.size()), [&](int64_t i) { return (features[j].values[size_t(rows[size_t(i)])] - scale.mean) / scale.std; });
    if (!text.empty())
      notes.warnings.push_back(
          joined("column \"", features[j].name, "\": ", text, o.standardize ? "" : "; \"standardize\": true keeps them apart"));
  }
  if (targets.empty()) return;
  const std::string text = equal_in_float(
      int64_t(rows.size()), [&](int64_t i) { return (targets[size_t(rows[size_t(i)])] - target_scale.mean) / target_scale.std; });
  if (!text.empty()) notes.warnings.push_back(joined("the target: ", text, "; \"standardize_target\": true keeps them apart"));
}

}  // namespace halfstep
