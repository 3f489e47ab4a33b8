// SPDX-License-Identifier: Apache-2.0
// The report of one run or of several: one self-contained HTML file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/report/mistakes.h"
#include "apps/report/record.h"

namespace halfstep::app {

// The plan of a run's step (plan_json with "calls"), or why there is none.
struct PlannedStep {
  Json plan = Json::object();
  std::string fault;
};

// Returns the page for at least one run; plans, mistakes: one for each run, or empty.
std::string report_page(const std::vector<RecordedRun>& runs, const std::vector<PlannedStep>& plans,
                        const std::vector<Mistakes>& mistakes = {});

}  // namespace halfstep::app
