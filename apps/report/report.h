// SPDX-License-Identifier: Apache-2.0
// Writes a report from folders of runs, or from files of measurements.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/report/record.h"

namespace halfstep::app {

// Reads runs; runs with the same name are called by their folders. Throws as read_run.
std::vector<RecordedRun> read_runs(const std::vector<std::filesystem::path>& folders);

// Returns whether these are files of `halfstep bench mlp --json`. Throws ConfigError if only some are.
bool are_measurements(const std::vector<std::filesystem::path>& paths);
// Returns the page about them. Throws as read_measurement.
std::string bench_report_of(const std::vector<std::filesystem::path>& files);

struct ReportOptions {
  // Plans the memory and the precision of a step from each config; if that fails, for example because shapes depend on missing
  // data, the page has the reason.
  bool plan = true;
  int64_t mistakes = 24;  // number of worst samples for each run; 0: none, without reading model and data
  double seconds = 10;    // to find them, for all runs together
};
// Returns the page about these runs. Throws as read_run.
std::string report_of(const std::vector<std::filesystem::path>& folders, const ReportOptions& options = {});

}  // namespace halfstep::app
