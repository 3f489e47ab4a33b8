// SPDX-License-Identifier: Apache-2.0
// Metrics of rows of labels, which a model trained by CTCLoss emits step by step.
#include <algorithm>
#include <vector>

#include "apps/catalog/metrics.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

// Returns the edit distance: the fewest insertions, deletions and substitutions that turn one row into the other.
int64_t edit_distance(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  std::vector<int64_t> row(to.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = int64_t(j);
  for (size_t i = 0; i < from.size(); ++i) {
    int64_t corner = std::exchange(row[0], int64_t(i) + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      const int64_t changed = corner + (from[i] != to[j]);
      corner = row[j + 1];
      row[j + 1] = std::min({changed, corner + 1, row[j] + 1});
    }
  }
  return row.back();
}

class LabelErrorRate : public Metric {
 public:
  explicit LabelErrorRate(int64_t blank) : blank_(blank) {}
  void reset() override { errors_ = labels_ = 0; }
  void add(const Tensor& output, const Tensor& target) override {
    const std::vector<int64_t> best = argmax(output, -1).to_vector<int64_t>(), truth = target.to_vector<int64_t>();
    const auto steps = size_t(output.size(1)), max_labels = size_t(target.size(1));
    for (size_t b = 0; b < size_t(target.size(0)); ++b) {
      std::vector<int64_t> predicted, expected;
      for (size_t t = 0; t < steps; ++t) {
        const int64_t now = best[b * steps + t];
        if (now != blank_ && (t == 0 || best[b * steps + t - 1] != now)) predicted.push_back(now);
      }
      for (size_t i = 0; i < max_labels && truth[b * max_labels + i] >= 0; ++i) expected.push_back(truth[b * max_labels + i]);
      errors_ += edit_distance(predicted, expected);
      labels_ += int64_t(expected.size());
    }
  }
  double value() const override { return double(errors_) / double(std::max<int64_t>(1, labels_)); }
  bool more_is_better() const override { return false; }
  bool is_share() const override { return true; }
  int64_t counted() const override { return labels_; }

 private:
  int64_t blank_, errors_ = 0, labels_ = 0;
};

}  // namespace

void add_label_metrics(Catalog<MetricRow>& catalog) {
  catalog.add(metric_row<LabelErrorRate>(
      "label_error_rate", "missing, extra and wrong labels over the number of labels; output: the likeliest of each step",
      Targets::labels, arg<int64_t>(integer("blank", 0, "class that means no label").at_least(0))));
}

}  // namespace halfstep::app
