// SPDX-License-Identifier: Apache-2.0
// The first tables of a report: results, and differences between the configs.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "apps/report/mistakes.h"
#include "apps/report/record.h"

namespace halfstep::app {

// Returns the run's name with its color mark.
std::string key_of(const std::vector<RecordedRun>& runs, size_t run);
bool is_share(const std::string& key);  // whether it is from 0 to 1: "val/accuracy"

// Writes each run with the metrics at its best step, in the units of the file. mistakes: one for each run, or empty.
void write_summary(std::ostream& out, const std::vector<RecordedRun>& runs, const std::vector<Mistakes>& mistakes);
void write_differences(std::ostream& out, const std::vector<RecordedRun>& runs);

}  // namespace halfstep::app
