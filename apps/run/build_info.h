// SPDX-License-Identifier: Apache-2.0
// Which build of halfstep this is. In a file of its own, as it is compiled again after each commit.
#pragma once

#include "apps/schema/json.h"

namespace halfstep::app {

Json build_info();  // "halfstep": the version, "commit", "compiler"

}  // namespace halfstep::app
