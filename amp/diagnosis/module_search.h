// SPDX-License-Identifier: Apache-2.0
// Finds the modules that must compute in float32 for a step to be finite: widens the module at the origin of the first bad value,
// repeatedly until the step is finite, then removes each module that is not needed.
#pragma once

#include <string>
#include <vector>

#include "amp/diagnosis/replay.h"
#include "amp/diagnosis/precisions.h"

namespace halfstep {

struct ModuleSearch {
  bool holds = false;                // the replay is finite with them
  std::vector<std::string> modules;  // paths, in the model's order
  StepReplayResult replay;           // the last one
};

// Searches by replays of the step, and restores the modules' precisions. Gives up after `max_modules`, or if the origin is in none.
ModuleSearch search_modules(const StepUnderTest& step, const StepReplay& replay, size_t max_modules = 8);

// Sets the module at the origin of the bad value to float32, or, if it is in float32 already, the one that feeds it; returns its
// path. Empty: there is none, or it is the model itself.
std::string widen_origin(const StepReplayResult& replay, Precisions& precisions);

// Returns the pattern of "amp.modules" for a module and its descendants: its path, or "^path$" if that also matches another path.
std::string pattern_for(Module& model, const std::string& path);
// Returns "amp": {"modules": {"fc1": "float32"}}.
std::string as_setting(Module& model, const std::vector<std::string>& modules);

}  // namespace halfstep
