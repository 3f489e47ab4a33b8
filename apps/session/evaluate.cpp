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
#include "apps/terminal/quantity_text.h"
#include "framework/autograd/grad_mode.h"
#include "framework/base/list_text.h"

namespace halfstep::app {

namespace {

// The answers to a batch, and its part of the loss. Tensors are undefined on a rank without rows.
struct BatchAnswers {
  Tensor answer, truth;
  Tensor last_values;                    // the answers of a forecast of no change; undefined without such a forecast
  double loss_sum = 0, denominator = 0;  // of the mean loss
};

// Combines the parts of all ranks.
BatchAnswers gathered(ProcessGroup& group, const BatchAnswers& own, bool has_last_values) {
  BatchAnswers out;
  for (const std::vector<double>& of_rank : group.gather(std::vector<double>{own.loss_sum, own.denominator}))
    out.loss_sum += of_rank[0], out.denominator += of_rank[1];
  out.answer = gather_rows(group, own.answer), out.truth = gather_rows(group, own.truth);
  if (has_last_values) out.last_values = gather_rows(group, own.last_values);
  return out;
}

}  // namespace

EvalResult evaluate(Module& module, const Loss& loss, const Json& config, const std::vector<NamedMetric>& metrics,
                    DataLoader<>& loader, Device device, const AutocastOptions& region, ProcessGroup* group) {
  const auto start = std::chrono::steady_clock::now();
  const NoGrad no_grad;
  const FreshStates begin(module);
  const bool training = module.training();
  module.eval();
  EvalResult out;
  double denominator = 0;
  const std::optional<int64_t> ignored = ignored_class(config);
  const DataForm form = loader.dataset().form();
  for (const NamedMetric& m : metrics) m.metric->reset();
  for (const NamedMetric& m : metrics)
    if (m.last_value) m.last_value->reset();
  const bool compares = std::any_of(metrics.begin(), metrics.end(), [](const NamedMetric& m) { return m.last_value != nullptr; });
  const auto* const series = compares ? std::get_if<SeriesForm>(&form.source) : nullptr;
  const auto compute = [&](const Batch& batch) {
    const auto [input, target] = on_device(batch, device);
    BatchAnswers answers;
    if (!input.defined()) return answers;
    Tensor output, value;
    {
      const Autocast open(device, region);
      output = module(input);
      value = loss(output, target);
    }
    answers.denominator = loss.denominator(target).value();
    if (answers.denominator != 0) answers.loss_sum = value.item<double>() * answers.denominator;
    const auto [given, wanted] = as_measured(output, target, config, form);
    answers.answer = given, answers.truth = wanted;
    if (series) answers.last_values = form.scale.in_units(last_values(input, series->options).to(DType::f64));
    return answers;
  };
  loader.set_state({});  // random transforms draw the same numbers each time, also after resuming
  for (const Batch& batch : loader) {
    BatchAnswers answers = compute(batch);
    if (group) answers = gathered(*group, answers, series != nullptr);
    out.loss += answers.loss_sum;
    denominator += answers.denominator;
    out.samples += loader.part().total;
    if (ignored && answers.truth.dtype() == DType::i64)
      out.labels += answers.truth.numel(), out.ignored += answers.truth.eq(*ignored).sum().item<int64_t>();
    for (const NamedMetric& m : metrics) m.metric->add(answers.answer, answers.truth);
    for (const NamedMetric& m : metrics)
      if (series && m.last_value) m.last_value->add(answers.last_values, answers.truth);
  }
  module.train(training);
  out.loss /= denominator;
  for (const NamedMetric& m : metrics) {
    out.metrics.push_back(
        {m.name, m.metric->value(), m.metric->is_share(), m.metric->details(), m.column, {}, m.metric->counted()});
    if (series && m.last_value) out.metrics.back().last_value = m.last_value->value();
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

std::string last_value_text(const MetricValue& m) {
  return m.last_value ? " (last value: " + number_text(*m.last_value, 4) + ")" : "";
}

std::vector<std::string> lines_by_column(const std::vector<MetricValue>& metrics, size_t most_columns) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;  // by metric name
  for (const MetricValue& m : metrics) {
    if (m.column.empty()) continue;
    const std::string name = m.name.substr(0, m.name.size() - m.column.size() - 1);
    auto at = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == name; });
    if (at == lines.end()) at = lines.insert(at, {name, {}});
    at->second.push_back(joined(m.column, ' ', number_text(m.value, 4), last_value_text(m)));
  }
  std::vector<std::string> out;
  for (const auto& [name, columns] : lines) out.push_back(name + " by column: " + list_text(columns, most_columns));
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
