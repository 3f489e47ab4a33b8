// SPDX-License-Identifier: Apache-2.0
// Which modules a step must compute in float32 so that its range suffices: the module that a bad value comes from, again and again
// while the step is not finite, then each is taken out again if the step holds without it.
#pragma once

#include <string>
#include <vector>

#include "amp/diagnosis/replay.h"
#include "amp/diagnosis/precisions.h"

namespace halfstep {

struct ModuleSearch {
  bool holds = false;                // the arm is finite with them
  std::vector<std::string> modules;  // paths, in order of the model
  ArmResult arm;                     // the last one
};

// Modules keep the precision that they had. Gives up after `most` modules, and where the origin is in none.
ModuleSearch search_modules(const StepUnderTest& step, const Arm& arm, size_t most = 8);

// The module that the bad value of an arm comes from, now in float32; or, where that is in float32 already, the one that feeds it.
// Empty: there is none, or it is the model itself.
std::string widen_origin(const ArmResult& arm, Precisions& precisions);

// The pattern of "amp.modules" for a module and those below it: its path, or "^path$" where that is a part of another one's, too.
std::string pattern_for(Module& model, const std::string& path);
// "amp": {"modules": {"fc1": "float32"}}
std::string as_setting(Module& model, const std::vector<std::string>& modules);

}  // namespace halfstep
