// SPDX-License-Identifier: Apache-2.0
// The catalogue of metrics: numbers about a model, besides its loss, that an evaluation gathers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/catalog/catalog.h"
#include "apps/catalog/facts.h"
#include "framework/tensor/tensor.h"

namespace halfstep::app {

// An evaluation calls reset(), then add() for each batch, then value().
class Metric {
 public:
  virtual ~Metric() = default;
  virtual void reset() = 0;
  // `output` [B, ...] is the model's, in the dtype that it computed in; `target` [B, ...] is the data's. Both are on the device.
  virtual void add(const Tensor& output, const Tensor& target) = 0;
  virtual double value() const = 0;            // over all batches since reset()
  virtual Json details() const { return {}; }  // more than the value, such as a table: a list of rows; or null
  virtual bool more_is_better() const { return true; }
  virtual bool is_share() const { return false; }  // of 1; people are shown it in percent
  // Of a share: of how many, which its standard error depends on, such as the places of sequences; 0: of samples.
  virtual int64_t counted() const { return 0; }
};

struct MetricRow {
  Component component;
  std::function<std::unique_ptr<Metric>(const Json& self)> make;
  std::optional<Targets> targets = {};  // what it compares with; empty: either
  bool always = false;                  // gathered wherever it can be, also where a config does not list it
};
Catalog<MetricRow>& metric_catalog();
void add_metric_rows(Catalog<MetricRow>& all);  // all but accuracy
// Class targets of an output as numbers: of shares of classes, which have the output's shape, the largest.
Tensor classes_of(const Tensor& target, const Tensor& output);
void add_label_metrics(Catalog<MetricRow>& all);  // rows of metrics of labels
inline const Family& metric_family() { return metric_catalog().family(); }

// The row of a class whose constructor takes the values of its fields, in order.
template <class M, class... Ts>
MetricRow metric_row(std::string type, std::string doc, std::optional<Targets> targets, Arg<Ts>... args) {
  return {{std::move(type), std::move(doc), {args.field...}},
          [args...](const Json& self) -> std::unique_ptr<Metric> { return std::make_unique<M>(value_of(self, args)...); },
          targets};
}

struct NamedMetric {
  std::string name;  // "accuracy"; in metrics.jsonl "val/accuracy"
  std::unique_ptr<Metric> metric;
  bool always;           // see MetricRow
  std::string column{};  // of the targets, whose values alone it compares; empty: it compares all
  // The same over the predictions of no change, where there are any; else null.
  std::unique_ptr<Metric> last_value{};
};
// The metrics of a config's list, after those that are always computed. `given`: the targets of the data; empty: not known.
// `ignored`: a class that the loss does not count, and so they do not.
std::vector<NamedMetric> build_metrics(const Json& list, std::optional<Targets> given, std::optional<int64_t> ignored = {});
// The same for targets from these columns, and rmse in any case: besides, each metric over each column, named "rmse.COLUMN", where
// there are several. last_value: also of predictions of no change?
std::vector<NamedMetric> build_number_metrics(const Json& list, const std::vector<std::string>& columns, bool last_value);
// Do the listed metrics fit the data, and have they names of their own? Paths "metrics.N".
void check_metrics(const Json& list, std::optional<Targets> given, Issues& issues);

}  // namespace halfstep::app

// As HALFSTEP_REGISTER_MODULE, for a class derived from Metric: HALFSTEP_REGISTER_METRIC(MyMetric, Targets::classes, fields...), or
// std::nullopt for one that takes any targets.
#define HALFSTEP_REGISTER_METRIC(Class, targets, ...) HALFSTEP_REGISTER(metric, Class, targets __VA_OPT__(, ) __VA_ARGS__)
