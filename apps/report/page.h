// SPDX-License-Identifier: Apache-2.0
// The report of one run or of several: one HTML file with everything in it, which asks no other address for anything.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/report/mistakes.h"
#include "apps/report/record.h"

namespace halfstep::app {

// What is planned for a step of a run (plan_json with "calls"), or why that is not known.
struct PlannedStep {
  Json plan = Json::object();
  std::string fault;
};

// At least one run; plans, mistakes: one for each run, or none at all.
std::string report_page(const std::vector<RecordedRun>& runs, const std::vector<PlannedStep>& plans,
                        const std::vector<Mistakes>& mistakes = {});

}  // namespace halfstep::app
