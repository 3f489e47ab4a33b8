// SPDX-License-Identifier: Apache-2.0
#include "framework/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "framework/base/fork_mutex.h"

namespace halfstep::logging {
namespace {

void (*capture)(Level, std::string_view) = nullptr;
void (*writer)(Level, std::string_view) = nullptr;

spdlog::logger& logger() {
  static const auto& instance = *new auto([] {  // never destroyed: threads may still warn when the process ends
    auto made = spdlog::stderr_color_mt("halfstep");
    made->set_pattern("%^%l%$: %v");
    return made;
  }());
  return *instance;
}

// In the order of Level.
constexpr spdlog::level::level_enum kSpdlogLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                       spdlog::level::err, spdlog::level::off};

void emit(Level level, std::string_view message) {
  if (capture) return capture(level, message);
  const auto spdlog_level = kSpdlogLevels[int(level)];
  if (!writer) return logger().log(spdlog_level, "{}", message);
  if (logger().should_log(spdlog_level)) writer(level, message);
}

}  // namespace

void set_level(Level level) { logger().set_level(kSpdlogLevels[int(level)]); }
void debug(std::string_view message) { emit(Level::debug, message); }
void info(std::string_view message) { emit(Level::info, message); }
void warn(std::string_view message) { emit(Level::warn, message); }

void warn_once(std::string_view message) {
  static constinit ForkMutex mutex;
  const std::lock_guard lock(mutex);
  static auto& seen = *new std::set<std::string, std::less<>>;
  if (seen.emplace(message).second) warn(message);
}

void set_writer(void (*write)(Level, std::string_view)) { writer = write; }

Capture::Capture(void (*sink)(Level, std::string_view)) { capture = sink; }
Capture::~Capture() { capture = nullptr; }

}  // namespace halfstep::logging
