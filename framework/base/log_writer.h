// SPDX-License-Identifier: Apache-2.0
// Redirects the library's messages, for a program that prints in its own way.
#pragma once

#include <string_view>

#include "framework/base/log.h"

namespace halfstep::logging {

// Sends each message that passes the level to `write` instead of stderr; nullptr: to stderr. Not thread-safe.
void set_writer(void (*write)(Level, std::string_view));

}  // namespace halfstep::logging
