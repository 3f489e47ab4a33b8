// SPDX-License-Identifier: Apache-2.0
// run.json: which program trained a run, where, when, and how it ended. It is written when a run starts, when it resumes, and at
// the end. A run that was killed has the ending "running".
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "apps/schema/json.h"

namespace halfstep::app {

inline constexpr size_t kMostOfRecord = size_t(16) << 20;  // bytes that are read of it

class RunRecord {
 public:
  // facts: "device", "threads", "ranks", and what logging.machine allows. continues: earlier starts are kept, the newest 100 of
  // them. Throws IoError.
  RunRecord(std::filesystem::path path, const Json& facts, int64_t step, bool continues);
  // A file that cannot be written is a warning.
  void end(const std::string& ending, const Json& summary);

 private:
  std::filesystem::path path_;
  Json json_;
};

// That of this process, a string an argument.
Json command_line();

}  // namespace halfstep::app
