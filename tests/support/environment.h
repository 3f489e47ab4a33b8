// SPDX-License-Identifier: Apache-2.0
// Sets an environment variable in a scope; programs that the test starts inherit it.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace halfstep::testing {

class Environment {
 public:
  [[nodiscard]] Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace halfstep::testing
