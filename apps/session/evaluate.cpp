// SPDX-License-Identifier: Apache-2.0
#include "apps/session/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <variant>

#include "amp/autocast/autocast.h"
#include "apps/catalog/losses.h"
#include "apps/session/ranks.h"
#include "apps/terminal/progress.h"
#include "framework/autograd/grad_mode.h"
#include "framework/base/list_text.h"

namespace halfstep::app {

EvalResult evaluate(Module& module, const Loss& loss, const Json& config, const std::vector<NamedMetric>& metrics,
                    DataLoader<>& loader, Device device, const AutocastOptions& region, ProcessGroup* group) {
  const auto start = std::chrono::steady_clock::now();
  const NoGrad no_grad;
  const FreshStates begin(module);
  const bool training = module.training();
  module.eval();
  EvalResult out;
  double all = 0;
  const std::optional<int64_t> ignored = ignored_class(config);
  const DataForm form = loader.dataset().form();
  for (const NamedMetric& m : metrics) m.metric->reset();
  for (const NamedMetric& m : metrics)
    if (m.last_value) m.last_value->reset();
  const bool compares = std::any_of(metrics.begin(), metrics.end(), [](const NamedMetric& m) { return m.last_value != nullptr; });
  const auto* const series = compares ? std::get_if<SeriesForm>(&form.source) : nullptr;
  loader.set_state({});  // random transforms draw the same numbers each time, also after resuming
  for (const Batch& batch : loader) {
    const auto [input, target] = on_device(batch, device);
    Tensor answer, truth, none;  // answer, truth: undefined on a rank without rows; none: without last values
    double sum = 0, over = 0;
    if (input.defined()) {
      Tensor output, value;
      {
        const Autocast open(device, region);
        output = module(input);
        value = loss(output, target);
      }
      over = loss.denominator(target).value();
      if (over != 0) sum = value.item<double>() * over;
      const auto [given, wanted] = as_measured(output, target, config, form);
      answer = given, truth = wanted;
      if (series) none = form.scale.in_units(last_values(input, series->options));
    }
    if (group) {
      const std::vector<double> mine{sum, over};
      sum = over = 0;
      for (const std::vector<double>& of : group->gather(mine)) sum += of[0], over += of[1];
      answer = gather_rows(*group, answer), truth = gather_rows(*group, truth);
      if (series) none = gather_rows(*group, none);
    }
    out.loss += sum;
    all += over;
    out.samples += loader.part().total;
    if (ignored && truth.dtype() == DType::i64)
      out.labels += truth.numel(), out.ignored += truth.eq(*ignored).sum().item<int64_t>();
    for (const NamedMetric& m : metrics) m.metric->add(answer, truth);
    for (const NamedMetric& m : metrics)
      if (series && m.last_value) m.last_value->add(none, truth);
  }
  module.train(training);
  out.loss /= all;
  for (const NamedMetric& m : metrics) {
    out.metrics.push_back(
        {m.name, m.metric->value(), m.metric->is_share(), m.metric->details(), m.column, {}, m.metric->counted()});
    if (series && m.last_value) out.metrics.back().last_value = m.last_value->value();
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

std::string beside(const MetricValue& m) { return m.last_value ? " (last value: " + number_text(*m.last_value, 4) + ")" : ""; }

std::vector<std::string> lines_by_column(const std::vector<MetricValue>& metrics, size_t most) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;  // by metric name
  for (const MetricValue& m : metrics) {
    if (m.column.empty()) continue;
    const std::string name = m.name.substr(0, m.name.size() - m.column.size() - 1);
    auto at = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == name; });
    if (at == lines.end()) at = lines.insert(at, {name, {}});
    at->second.push_back(joined(m.column, ' ', number_text(m.value, 4), beside(m)));
  }
  std::vector<std::string> out;
  for (const auto& [name, columns] : lines) out.push_back(name + " by column: " + list_text(columns, most));
  return out;
}

Json metrics_json(const std::string& split, const std::vector<MetricValue>& metrics) {
  Json out = Json::object();
  for (const MetricValue& m : metrics) {
    out[split + "." + m.name] = std::isfinite(m.value) ? Json(m.value) : Json();
    if (m.last_value) out[split + "." + m.name + ".last_value"] = std::isfinite(*m.last_value) ? Json(*m.last_value) : Json();
    if (!m.details.empty()) out[split + "." + m.name + ".table"] = m.details;
  }
  return out;
}

Batch on_device(const Batch& batch, Device device) {
  if (!batch.input.defined() || (batch.input.device() == device && batch.target.device() == device)) return batch;
  const MemoryScope scope(MemoryTag::data);
  return {batch.input.to(device), batch.target.to(device)};
}

}  // namespace halfstep::app
