// SPDX-License-Identifier: Apache-2.0
// The first tables of a report: results, and what differs between the configs.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "apps/report/mistakes.h"
#include "apps/report/record.h"

namespace halfstep::app {

// The run's name behind its color.
std::string key_of(const std::vector<RecordedRun>& runs, size_t run);
bool is_share(const std::string& key);  // of 1: "val/accuracy"

// Each run with the metrics at its best step, in the units of the file. mistakes: of each run, or none at all.
void write_summary(std::ostream& out, const std::vector<RecordedRun>& runs, const std::vector<Mistakes>& mistakes);
void write_differences(std::ostream& out, const std::vector<RecordedRun>& runs);

}  // namespace halfstep::app
