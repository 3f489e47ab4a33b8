// SPDX-License-Identifier: Apache-2.0
// Several runs side by side, in a terminal.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "apps/report/record.h"

namespace halfstep::app {

// The keys in which the configs differ, and each run's values: at its best step where checkpoint.monitor names one, else the last.
// width: of the terminal; 0: no limit.
void print_comparison(std::ostream& out, const std::vector<RecordedRun>& runs, size_t width = 0);
Json comparison_json(const std::vector<RecordedRun>& runs);

// A curve in so many characters: " .:-=" as blocks of eight heights; values that are not finite are left out.
std::string small_curve(const Points& points, int width);

}  // namespace halfstep::app
