// SPDX-License-Identifier: Apache-2.0
// The catalogue of metrics: numbers about a model, besides its loss, that an evaluation computes.
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
  // Adds a batch on the device: `output` [B, ...] of the model, `target` [B, ...] of the data; float64 if the data scales targets.
  virtual void add(const Tensor& output, const Tensor& target) = 0;
  virtual double value() const = 0;            // over all batches since reset()
  virtual Json details() const { return {}; }  // additional results such as a table: a list of rows; or null
  virtual bool more_is_better() const { return true; }
  virtual bool is_share() const { return false; }  // a number from 0 to 1, shown in percent
  // Returns the denominator of a share, which decides its standard error, such as the number of positions of sequences; 0: the
  // samples.
  virtual int64_t counted() const { return 0; }
};

struct MetricRow {
  Component component;
  std::function<std::unique_ptr<Metric>(const Json& self)> make;
  std::optional<Targets> targets = {};  // that it compares; empty: any
  bool always = false;                  // computed wherever possible, even if a config does not list it
};
Catalog<MetricRow>& metric_catalog();
void add_metric_rows(Catalog<MetricRow>& catalog);
// Converts class targets to class numbers: for shares of classes, which have the output's shape, the largest.
Tensor classes_of(const Tensor& target, const Tensor& output);
void add_label_metrics(Catalog<MetricRow>& catalog);  // metrics of labels
inline const Family& metric_family() { return metric_catalog().family(); }

// Makes the row of a class whose constructor takes the values of its fields, in order.
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
  std::string column{};  // of the targets that it compares; empty: all
  // The same metric on the predictions of no change, if there are any; else null.
  std::unique_ptr<Metric> last_value{};
};
// Constructs the metrics of a config's list, after those that are always computed. `given`: the targets of the data; empty:
// unknown. `ignored`: a class that the loss, and so the metrics, ignore.
std::vector<NamedMetric> build_metrics(const Json& list, std::optional<Targets> given, std::optional<int64_t> ignored = {});
// Constructs metrics for targets from these columns, with rmse in any case; if there are several columns, also each metric for
// each column, named "rmse.COLUMN". last_value: also for predictions of no change.
std::vector<NamedMetric> build_number_metrics(const Json& list, const std::vector<std::string>& columns, bool last_value);
// Checks that the listed metrics fit the data and have distinct names. Paths "metrics.N".
void check_metrics(const Json& list, std::optional<Targets> given, Issues& issues);

}  // namespace halfstep::app

// Registers a class derived from Metric: HALFSTEP_REGISTER_METRIC(MyMetric, Targets::classes, fields...), or std::nullopt for a
// metric of any targets.
#define HALFSTEP_REGISTER_METRIC(Class, targets, ...) HALFSTEP_REGISTER(metric, Class, targets __VA_OPT__(, ) __VA_ARGS__)
