// SPDX-License-Identifier: Apache-2.0
// The build of halfstep. Only build_info.cpp includes the header that each commit changes, so that a commit recompiles nothing
// else; scripts/check_layers.py checks that.
#pragma once

#include <string>

#include "apps/schema/json.h"

namespace halfstep::app {

// Returns "halfstep": the version, "commit", "compiler".
Json build_info();

// Returns "halfstep 0.2.0 (commit 1234567, GNU 12.2.0, Release, CUDA not built in)".
std::string version_text();

}  // namespace halfstep::app
