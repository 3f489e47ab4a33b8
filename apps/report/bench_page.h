// SPDX-License-Identifier: Apache-2.0
// The page about measurements of `halfstep bench mlp`: times, memory by purpose, and agreement of losses.
#pragma once

#include <string>
#include <vector>

#include "apps/report/bench_file.h"

namespace halfstep::app {

// Returns the page. Needs at least one file.
std::string bench_page(const std::vector<Measurement>& files);

}  // namespace halfstep::app
