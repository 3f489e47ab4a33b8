// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/metrics.h"

#include <algorithm>
#include <utility>

#include "apps/catalog/infer.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

// A metric on transformed outputs or targets.
class MetricAdapter : public Metric {
 public:
  explicit MetricAdapter(std::unique_ptr<Metric> metric) : metric_(std::move(metric)) {}
  void reset() override { metric_->reset(); }
  double value() const override { return metric_->value(); }
  Json details() const override { return metric_->details(); }
  bool more_is_better() const override { return metric_->more_is_better(); }
  bool is_share() const override { return metric_->is_share(); }
  int64_t counted() const override { return metric_->counted(); }

 protected:
  std::unique_ptr<Metric> metric_;
};

// A metric of classes that ignores one class: it passes that class on as a negative one, which no metric counts.
class IgnoringMetric : public MetricAdapter {
 public:
  IgnoringMetric(std::unique_ptr<Metric> metric, int64_t ignored) : MetricAdapter(std::move(metric)), ignored_(ignored) {}
  void add(const Tensor& output, const Tensor& target) override {
    metric_->add(output, target.dtype() == DType::i64 ? target.masked_fill(target.eq(ignored_), -1) : target);
  }

 private:
  int64_t ignored_;
};

// A metric of one column of samples [..., columns].
class ColumnMetric : public MetricAdapter {
 public:
  ColumnMetric(std::unique_ptr<Metric> metric, int64_t column, int64_t columns)
      : MetricAdapter(std::move(metric)), column_(column), columns_(columns) {}
  void add(const Tensor& output, const Tensor& target) override { metric_->add(in_column(output), in_column(target)); }

 private:
  Tensor in_column(const Tensor& numbers) const { return numbers.reshape({numbers.size(0), -1, columns_}).select(2, column_); }
  int64_t column_, columns_;
};

std::string name_of(const Json& self) { return (self["name"].is_null() ? self["type"] : self["name"]).get<std::string>(); }

// Returns the list, after the metrics that are always computed.
Json completed(const Json& list, std::optional<Targets> given) {
  Json out = Json::array();
  for (const MetricRow& row : metric_catalog().rows()) {
    const auto is_it = [&](const Json& self) { return self["type"] == row.component.type; };
    if (!row.always || (given && row.targets.value_or(*given) != *given) || std::any_of(list.begin(), list.end(), is_it)) continue;
    Issues none;
    out.push_back(validate(row.component.type, component("", metric_family(), ""), "", none));
  }
  for (const Json& self : list) out.push_back(self);
  return out;
}

}  // namespace

Catalog<MetricRow>& metric_catalog() {
  static Catalog<MetricRow>& catalog = *[] {
    auto* const made = new Catalog<MetricRow>("metric", {text("name", nullptr, "in metrics.jsonl; left out: the type")});
    add_metric_rows(*made);
    add_label_metrics(*made);
    return made;
  }();
  return catalog;
}

std::vector<NamedMetric> build_metrics(const Json& list, std::optional<Targets> given, std::optional<int64_t> ignored) {
  std::vector<NamedMetric> out;
  for (const Json& self : completed(list, given)) {
    const MetricRow& row = metric_catalog().row(self);
    std::unique_ptr<Metric> metric = row.make(self);
    if (ignored >= 0 && given == Targets::classes) metric = std::make_unique<IgnoringMetric>(std::move(metric), *ignored);
    out.push_back({name_of(self), std::move(metric), row.always});
  }
  return out;
}

std::vector<NamedMetric> build_number_metrics(const Json& list, const std::vector<std::string>& columns, bool last_value) {
  Json with_rmse = list;  // for comparison with predicting no change
  const std::vector<NamedMetric> given = build_metrics(list, Targets::numbers);
  if (std::none_of(given.begin(), given.end(), [](const NamedMetric& m) { return m.name == "rmse"; }))
    with_rmse.push_back({{"type", "rmse"}, {"name", nullptr}});
  const auto build = [&] { return build_metrics(with_rmse, Targets::numbers); };
  std::vector<NamedMetric> out = build();
  if (last_value) {
    std::vector<NamedMetric> no_change = build();
    for (size_t m = 0; m < out.size(); ++m) out[m].last_value = std::move(no_change[m].metric);
  }
  const auto k = int64_t(columns.size());
  for (int64_t j = 0; j < k && k > 1; ++j) {
    std::vector<NamedMetric> model = build(), no_change = build();
    std::string column = columns[size_t(j)];
    std::replace_if(
        column.begin(), column.end(), [](unsigned char c) { return c < 0x20; }, ' ');  // names are parts of lines
    for (size_t m = 0; m < model.size(); ++m) {
      NamedMetric of_column{joined(model[m].name, '.', column), std::make_unique<ColumnMetric>(std::move(model[m].metric), j, k),
                            model[m].always, column};
      if (last_value) of_column.last_value = std::make_unique<ColumnMetric>(std::move(no_change[m].metric), j, k);
      out.push_back(std::move(of_column));
    }
  }
  return out;
}

void check_metrics(const Json& list, std::optional<Targets> given, Issues& issues) {
  const Json all = completed(list, given);
  std::vector<std::string> names = {"loss"};  // its own line has this name
  for (size_t i = 0; i < all.size(); ++i) {
    const Json& self = all[i];
    const size_t before = all.size() - list.size();
    const std::string path = i < before ? "metrics" : join_path("metrics", i - before), name = name_of(self);
    const MetricRow& row = metric_catalog().row(self);
    if (given && row.targets.value_or(*given) != *given) {
      issues.error(path,
                   row.component.type + (*given == Targets::numbers  ? " needs data with classes"
                                         : *given == Targets::labels ? " is not for data with rows of labels"
                                                                     : " needs numbers as targets, but data.train has classes"));
    }
    if (std::find(names.begin(), names.end(), name) != names.end())
      issues.error(path, "two values would be called \"" + name + "\"; give this one another \"name\"");
    names.push_back(name);
    try {
      row.make(self);
    } catch (const Error& e) { issues.error(path, one_line(e)); }
  }
}

}  // namespace halfstep::app
