// SPDX-License-Identifier: Apache-2.0
// Which modules a step must compute in float32 so that its range suffices: the module that a bad value comes from, again and again
// while the step is not finite, then each is taken out again if the step holds without it.
#pragma once

#include <string>
#include <vector>

#include "amp/diagnosis/arm.h"

namespace halfstep {

struct ModuleSearch {
  bool holds = false;                // the arm is finite with them
  std::vector<std::string> modules;  // paths, in order of the model
  ArmResult arm;                     // the last one
};

// Modules keep the precision that they had. Gives up after `most` modules, and where the origin is in none.
ModuleSearch search_modules(const StepUnderTest& step, const Arm& arm, size_t most = 8);

// "amp": {"modules": {"fc1": "float32"}}
std::string as_setting(const std::vector<std::string>& modules);

}  // namespace halfstep
