// SPDX-License-Identifier: Apache-2.0
#include "apps/report/report.h"

#include "apps/catalog/infer.h"
#include "apps/config/config.h"
#include "apps/report/page.h"
#include "apps/run/plan.h"

namespace halfstep::app {
namespace {

PlannedStep planned(const std::filesystem::path& folder) {
  PlannedStep out;
  try {
    const StepPlan plan = plan_step(load_config(folder / "config.resolved.json"));
    out.plan = plan_json(plan);
    out.plan["calls"] = calls_json(plan);
  } catch (const Error& e) { out.fault = one_line(e); }
  return out;
}

}  // namespace

std::vector<RecordedRun> read_runs(const std::vector<std::filesystem::path>& folders) {
  std::vector<RecordedRun> out;
  for (const std::filesystem::path& folder : folders) out.push_back(read_run(folder));
  for (size_t i = 0; i < out.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (out[k].name == out[i].name) out[i].name = folders[i].string();
  return out;
}

std::string report_of(const std::vector<std::filesystem::path>& folders, bool with_plan) {
  const std::vector<RecordedRun> runs = read_runs(folders);
  std::vector<PlannedStep> plans;
  if (with_plan)
    for (const std::filesystem::path& folder : folders) plans.push_back(planned(folder));
  return report_page(runs, plans);
}

}  // namespace halfstep::app
