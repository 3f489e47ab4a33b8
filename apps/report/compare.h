// SPDX-License-Identifier: Apache-2.0
// Several runs side by side, in a terminal.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "apps/report/record.h"

namespace halfstep::app {

// The keys in which the configs differ, and each run's values: at its best step where checkpoint.monitor names one, else the last.
void print_comparison(std::ostream& out, const std::vector<RecordedRun>& runs);
Json comparison_json(const std::vector<RecordedRun>& runs);

// Rows of a table, with columns of equal width but for the last; a letter outside ASCII counts as one.
using Cells = std::vector<std::vector<std::string>>;
void print_cells(std::ostream& out, const Cells& rows);

// A curve in so many characters: " .:-=" as blocks of eight heights; values that are not finite are left out.
std::string small_curve(const Points& points, int width);

}  // namespace halfstep::app
