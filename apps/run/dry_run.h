// What a run would be, without running it.
#pragma once

#include <string>

#include "apps/config/config.h"

namespace halfstep::app {

// A table of layers with shapes, parameters and dtypes, and an estimate of the memory by purpose.
std::string describe_run(const Config& config);

}  // namespace halfstep::app
