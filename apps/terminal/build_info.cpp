// SPDX-License-Identifier: Apache-2.0
#include "apps/terminal/build_info.h"

#include "generated/halfstep_version.h"

namespace halfstep::app {

Json build_info() { return {{"halfstep", HALFSTEP_VERSION}, {"commit", HALFSTEP_COMMIT}, {"compiler", HALFSTEP_COMPILER}}; }

std::string version_text() {
  const std::string cuda = HALFSTEP_CUDA_VERSION;
  return std::string("halfstep ") + HALFSTEP_VERSION + " (commit " + HALFSTEP_COMMIT + ", " + HALFSTEP_COMPILER + ", " +
         HALFSTEP_BUILD_TYPE + ", CUDA " + (cuda.empty() ? "not built in" : cuda) + ")";
}

}  // namespace halfstep::app
