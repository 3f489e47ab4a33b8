// SPDX-License-Identifier: Apache-2.0
#include "apps/run/build_info.h"

#include "generated/halfstep_version.h"

namespace halfstep::app {

Json build_info() { return {{"halfstep", HALFSTEP_VERSION}, {"commit", HALFSTEP_COMMIT}, {"compiler", HALFSTEP_COMPILER}}; }

}  // namespace halfstep::app
