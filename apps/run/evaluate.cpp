// SPDX-License-Identifier: Apache-2.0
#include "apps/run/evaluate.h"

#include <chrono>
#include <cmath>

#include "amp/autocast/autocast.h"
#include "apps/catalog/losses.h"
#include "apps/run/ranks.h"
#include "framework/autograd/grad_mode.h"

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
  for (const NamedMetric& m : metrics) m.metric->reset();
  const DataForm form = loader.dataset().form();
  loader.set_state({});  // random transforms draw the same numbers each time, also after a resume
  for (const Batch& batch : loader) {
    const auto [input, target] = on_device(batch, device);
    Tensor answer, truth;  // none for a rank whose part of the batch is empty
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
    }
    if (group) {
      const std::vector<double> mine{sum, over};
      sum = over = 0;
      for (const std::vector<double>& of : group->gather(mine)) sum += of[0], over += of[1];
      answer = gather_rows(*group, answer), truth = gather_rows(*group, truth);
    }
    out.loss += sum;
    all += over;
    out.samples += loader.part().total;
    for (const NamedMetric& m : metrics) m.metric->add(answer, truth);
  }
  module.train(training);
  out.loss /= all;
  for (const NamedMetric& m : metrics)
    out.metrics.push_back({m.name, m.metric->value(), m.metric->is_share(), m.metric->details()});
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

Json metrics_json(const std::string& split, const std::vector<MetricValue>& metrics) {
  Json out = Json::object();
  for (const MetricRow& row : metric_catalog().rows())
    if (row.always) out[split + "." + row.component.type] = nullptr;
  for (const MetricValue& m : metrics) {
    out[split + "." + m.name] = std::isfinite(m.value) ? Json(m.value) : Json();
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
