// SPDX-License-Identifier: Apache-2.0
// Reads observed.jsonl for reports: the exponents of each parameter's gradient, and lost updates.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "apps/report/record.h"

namespace halfstep::app {

// Adds the curves "observed/..." to run.values, and run.observed. Ignores lines that are not of observed steps.
void add_observed(RecordedRun& run, const std::filesystem::path& file);

// Writes the last observed step of a run as a table.
void write_observed(std::ostream& out, const RecordedRun& run, bool with_name);

}  // namespace halfstep::app
