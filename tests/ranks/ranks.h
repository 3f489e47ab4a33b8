// SPDX-License-Identifier: Apache-2.0
// Access to the ranks of the job that runs a test.
#pragma once

#include <doctest/doctest.h>

#include "framework/comm/process_group.h"

namespace halfstep::testing {

ProcessGroup& ranks();

}  // namespace halfstep::testing
