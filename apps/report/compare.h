// SPDX-License-Identifier: Apache-2.0
// Compares several runs in a terminal.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "apps/report/record.h"

namespace halfstep::app {

// Prints the keys in which the configs differ, and each run's values: those of its best step if the config has
// checkpoint.monitor, else the last ones. width: columns of the terminal; 0: no limit.
void print_comparison(std::ostream& out, const std::vector<RecordedRun>& runs, size_t width = 0);
// Returns the same for programs, with all keys.
Json comparison_json(const std::vector<RecordedRun>& runs);

// Draws a curve in at most `width` characters: blocks of eight heights, each for the mean of a part of the points. Omits values
// that are not finite.
std::string small_curve(const Points& points, int width);

}  // namespace halfstep::app
