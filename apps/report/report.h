// SPDX-License-Identifier: Apache-2.0
// A report from the folders of runs, or from files of measurements.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/report/record.h"

namespace halfstep::app {

// Two runs of one name are called by their folders. Throws as read_run.
std::vector<RecordedRun> read_runs(const std::vector<std::filesystem::path>& folders);

// Are these files, as `halfstep bench mlp --json` prints them? Throws ConfigError where some are and some are not.
bool are_measurements(const std::vector<std::filesystem::path>& paths);
// The page about them. Throws as read_measurement.
std::string bench_report_of(const std::vector<std::filesystem::path>& files);

struct ReportOptions {
  // The memory and the precision of a step, which are planned anew from each config; where that fails, as without data that shapes
  // depend on, the page has the reason.
  bool plan = true;
  int64_t mistakes = 24;  // samples that a run's model answers worst; 0: none, and the model and its data are not read
  double seconds = 10;    // for finding them, of all runs together
};
// The page about these runs. Throws as read_run.
std::string report_of(const std::vector<std::filesystem::path>& folders, const ReportOptions& options = {});

}  // namespace halfstep::app
