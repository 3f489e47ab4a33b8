// SPDX-License-Identifier: Apache-2.0
// Evaluates a model on held-out data.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/catalog/metrics.h"
#include "framework/comm/process_group.h"
#include "framework/data/loading/loader.h"
#include "layers/layers.h"

namespace halfstep::app {

struct MetricValue {
  std::string name;  // "accuracy"
  double value;
  bool is_share;                       // see Metric, as details
  Json details = {};                   // empty, but not null, if the value was read from a checkpoint
  std::string column{};                // see NamedMetric
  std::optional<double> last_value{};  // the same metric for predictions of no change, if there are any
  int64_t counted = 0;                 // see Metric; 0 if the value was read from a checkpoint
  // Returns whether the value belongs into lines for people; not if it is in a table, which `halfstep eval` prints.
  bool in_lines() const { return details.is_null() && column.empty(); }
};

struct EvalResult {
  double loss = 0;  // mean over the loss's denominator (Loss::denominator); NaN if no target counts
  std::vector<MetricValue> metrics;
  int64_t samples = 0;
  double seconds = 0;
  // If the loss ignores a class: the number of labels, and of those of this class, which metrics leave out, too.
  int64_t labels = 0, ignored = 0;
};

// Makes one pass over `loader` without gradients, in eval mode, in the training's autocast `region`. Stateful layers begin at
// zero. With a group every rank computes its part of each batch, and all get the whole result. Restores the module's mode and
// states. Metrics get the results of as_measured() for `config`, the config's loss.
EvalResult evaluate(Module& module, const Loss& loss, const Json& config, const std::vector<NamedMetric>& metrics,
                    DataLoader<>& loader, Device device, const AutocastOptions& region, ProcessGroup* group = nullptr);

// Returns " (last value: 0.51)"; empty: the metric has none.
std::string last_value_text(const MetricValue& metric);
// Returns a line for each metric of several columns: "rmse by column: sold 4.1 (last value: 5.2), price 0.3 (last value: 0.2)".
std::vector<std::string> lines_by_column(const std::vector<MetricValue>& metrics, size_t most_columns);

// Returns the values for other programs: {"val.accuracy": 0.97}, with details as "val.confusion_matrix.table". Metrics of other
// kinds of data are null.
Json metrics_json(const std::string& split, const std::vector<MetricValue>& metrics);

// Returns the batch on `device`; a copy counts as memory of data.
Batch on_device(const Batch& batch, Device device);

}  // namespace halfstep::app
