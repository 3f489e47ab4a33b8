// SPDX-License-Identifier: Apache-2.0
// Sets the stand-ins' behaviour until the end of the scope, by an environment variable that fake_cublaslt.cpp or the tuner reads.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace halfstep::testing {

class Behaviour {
 public:
  Behaviour(const char* variable, const std::string& value) : name_(variable) {
    if (const char* before = std::getenv(variable)) before_ = before;
    setenv(variable, value.c_str(), 1);
  }
  ~Behaviour() {
    if (before_)
      setenv(name_.c_str(), before_->c_str(), 1);
    else
      unsetenv(name_.c_str());
  }
  Behaviour(const Behaviour&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace halfstep::testing
