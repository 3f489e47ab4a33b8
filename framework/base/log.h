// SPDX-License-Identifier: Apache-2.0
// The library's own messages (spdlog, to stderr). Programs that train print through their own reporter.
#pragma once

#include <string_view>

#include "framework/base/guard.h"

namespace halfstep::logging {

enum class Level { debug, info, warn, error, off };
void set_level(Level level);  // default: info
void debug(std::string_view message);
void info(std::string_view message);
void warn(std::string_view message);
void warn_once(std::string_view message);  // prints each text once in a process

// Sends each message that passes the level to `write` instead of stderr, for a program that prints in its own way; nullptr: to
// stderr. Not thread-safe.
void set_writer(void (*write)(Level, std::string_view));

// Sends every message, whatever the level, to `sink` instead of stderr while it lives (tests check warnings with it). Not
// thread-safe.
class Capture : LocalGuard {
 public:
  [[nodiscard]] explicit Capture(void (*sink)(Level, std::string_view));
  ~Capture();
};

}  // namespace halfstep::logging
