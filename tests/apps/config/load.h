// SPDX-License-Identifier: Apache-2.0
// Loads a small config, and errors of wrong ones.
#pragma once

#include <string>

#include "apps/config/config.h"
#include "framework/base/check.h"
#include "tests/apps/support.h"

namespace halfstep::app::testing {

inline constexpr const char* kGood = R"({
  "model": {"type": "MLP", "hidden": [8], "out_features": "auto"},
  "loss": "CrossEntropyLoss",
  "optimizer": {"type": "SGD", "lr": 0.1},
  "data": {"train": {"type": "Digits", "size": 64}, "loader": {"batch_size": 16}},
  "train": {"epochs": 1}
})";

inline std::string error_of(const fs::path& file, const ConfigOptions& options = {}) {
  try {
    load_config(file, options);
  } catch (const ConfigError& e) { return e.what(); }
  return "";
}

inline int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace halfstep::app::testing
