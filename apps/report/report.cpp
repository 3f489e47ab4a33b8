// SPDX-License-Identifier: Apache-2.0
#include "apps/report/report.h"

#include <algorithm>

#include "apps/catalog/infer.h"
#include "apps/config/config.h"
#include "apps/train/plan.h"

namespace halfstep::app {
namespace {

PlannedStep plan_of(const std::filesystem::path& folder) {
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

std::string report_of(const std::vector<std::filesystem::path>& folders, const ReportOptions& options) {
  const std::vector<RecordedRun> runs = read_runs(folders);
  std::vector<PlannedStep> plans;
  std::vector<Mistakes> mistakes;
  for (const std::filesystem::path& folder : folders) {
    if (options.plan) plans.push_back(plan_of(folder));
    if (options.mistakes > 0) mistakes.push_back(find_mistakes(folder, options.mistakes, options.seconds / double(folders.size())));
  }
  return report_page(runs, plans, mistakes);
}

bool are_measurements(const std::vector<std::filesystem::path>& paths) {
  const auto is_file = [](const std::filesystem::path& p) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(p, ignored);
  };
  const auto other = std::find_if(paths.begin(), paths.end(), [&](const auto& p) { return is_file(p) != is_file(paths[0]); });
  check<ConfigError>(other == paths.end(), "report",
                     "all must be folders of runs, or all files of `halfstep bench mlp --json`, got ", paths[0].string(), " and ",
                     other == paths.end() ? "" : other->string());
  return is_file(paths[0]);
}

std::string bench_report_of(const std::vector<std::filesystem::path>& files) {
  std::vector<Measurement> measurements;
  for (const std::filesystem::path& file : files) measurements.push_back(read_measurement(file));
  for (size_t i = 0; i < measurements.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (measurements[k].name == measurements[i].name) measurements[i].name = files[i].string();
  return bench_page(measurements);
}

}  // namespace halfstep::app
