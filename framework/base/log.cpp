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
    auto l = spdlog::stderr_color_mt("halfstep");
    l->set_pattern("%^%l%$: %v");
    return l;
  }());
  return *instance;
}

void emit(Level level, spdlog::level::level_enum to, std::string_view m) {
  if (capture) return capture(level, m);
  if (!writer) return logger().log(to, "{}", m);
  if (logger().should_log(to)) writer(level, m);
}

}  // namespace

void set_level(Level level) {
  constexpr spdlog::level::level_enum map[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err,
                                               spdlog::level::off};
  logger().set_level(map[int(level)]);
}
void debug(std::string_view m) { emit(Level::debug, spdlog::level::debug, m); }
void info(std::string_view m) { emit(Level::info, spdlog::level::info, m); }
void warn(std::string_view m) { emit(Level::warn, spdlog::level::warn, m); }

void warn_once(std::string_view m) {
  static ForkMutex mutex;
  static auto& seen = *new std::set<std::string, std::less<>>;
  const std::lock_guard lock(mutex);
  if (seen.emplace(m).second) warn(m);
}

void set_writer(void (*write)(Level, std::string_view)) { writer = write; }

Capture::Capture(void (*sink)(Level, std::string_view)) { capture = sink; }
Capture::~Capture() { capture = nullptr; }

}  // namespace halfstep::logging
