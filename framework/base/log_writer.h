// SPDX-License-Identifier: Apache-2.0
// Where the library's messages go in a program that has its own way of printing.
#pragma once

#include <string_view>

#include "framework/base/log.h"

namespace halfstep::logging {

// From now on each message that the level lets pass goes to `write` instead of stderr; nullptr: to stderr. Not thread-safe.
void set_writer(void (*write)(Level, std::string_view));

}  // namespace halfstep::logging
