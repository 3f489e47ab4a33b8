// SPDX-License-Identifier: Apache-2.0
// How well a model does on held-out data.
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
  Json details = {};                   // empty, and not null, where the value was read from a checkpoint
  std::string column{};                // see NamedMetric
  std::optional<double> last_value{};  // the same of the predictions of no change; nothing where there are none
  int64_t counted = 0;                 // see Metric; 0 where the value was read from a checkpoint
  // Is the value for the lines that people read? Not where a table holds it, which `halfstep eval` prints.
  bool in_lines() const { return details.is_null() && column.empty(); }
};

struct EvalResult {
  double loss = 0;  // over all that the loss is a mean over (Loss::denominator); NaN where no target counts
  std::vector<MetricValue> metrics;
  int64_t samples = 0;
  double seconds = 0;
  int64_t labels = 0, ignored = 0;  // where the loss leaves a class out: all, and those of it, which metrics leave out, too
};

// One pass over `loader` without gradients, in eval mode, under the same autocast as training, `region`. Stateful layers
// begin at zero. With a group every rank computes its part of each batch, and all have the whole result. The module is left in the
// mode and with the states that it was in. Metrics get the results of as_measured() for `config`, the loss of the config.
EvalResult evaluate(Module& module, const Loss& loss, const Json& config, const std::vector<NamedMetric>& metrics,
                    DataLoader<>& loader, Device device, const AutocastOptions& region, ProcessGroup* group = nullptr);

// " (last value: 0.51)", or nothing.
std::string beside(const MetricValue& metric);
// Where there are several columns: "rmse by column: sold 4.1 (last value: 5.2), price 0.3 (last value: 0.2)", a line a metric.
std::vector<std::string> lines_by_column(const std::vector<MetricValue>& metrics, size_t most);

// Their values for other programs: {"val.accuracy": 0.97}, and details as "val.confusion_matrix.table". Metrics that are there for
// other data are null.
Json metrics_json(const std::string& split, const std::vector<MetricValue>& metrics);

// The batch on `device`; the copy, if any, counts as data.
Batch on_device(const Batch& batch, Device device);

}  // namespace halfstep::app
