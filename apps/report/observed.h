// SPDX-License-Identifier: Apache-2.0
// observed.jsonl for people: where the gradients of each parameter lie, and what of their updates was lost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "apps/report/record.h"

namespace halfstep::app {

// Adds the curves "observed/..." to run.values, and run.observed. What is no line of an observed step is left out.
void add_observed(RecordedRun& run, const std::filesystem::path& file);

// The last observed step of a run as a table.
void write_observed(std::ostream& out, const RecordedRun& run, bool with_name);

}  // namespace halfstep::app
