// SPDX-License-Identifier: Apache-2.0
// Writes a report from folders of runs, or from files of measurements.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "apps/report/bench_file.h"
#include "apps/report/mistakes.h"
#include "apps/report/record.h"

namespace halfstep::app {

// Reads runs; a run with the name of an earlier one gets its folder as its name. Throws as read_run.
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
  double seconds = 10;    // time to find them, for all runs together
};
// Returns the page about these runs. Throws as read_run.
std::string report_of(const std::vector<std::filesystem::path>& folders, const ReportOptions& options = {});

// ---- the page about runs: one self-contained HTML file

// The plan of a run's step (plan_json with "calls"), or why there is none.
struct PlannedStep {
  Json plan = Json::object();
  std::string fault;
};

// Returns the page for at least one run; plans, mistakes: one for each run, or empty.
std::string report_page(const std::vector<RecordedRun>& runs, const std::vector<PlannedStep>& plans,
                        const std::vector<Mistakes>& mistakes = {});

// ---- its first tables: results, and differences between the configs

// Returns the run's name with its color mark.
std::string key_of(const std::vector<RecordedRun>& runs, size_t run);
bool is_share(const std::string& key);  // whether it is from 0 to 1: "val/accuracy"

// Writes each run with the metrics at its best step, in the units of the file. mistakes: one for each run, or empty.
void write_summary(std::ostream& out, const std::vector<RecordedRun>& runs, const std::vector<Mistakes>& mistakes);
void write_differences(std::ostream& out, const std::vector<RecordedRun>& runs);

// ---- the page about measurements

// Returns a page about times, memory by purpose, and agreement of losses. Needs at least one file.
std::string bench_page(const std::vector<Measurement>& files);

}  // namespace halfstep::app
