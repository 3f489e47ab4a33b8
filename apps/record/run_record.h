// SPDX-License-Identifier: Apache-2.0
// run.json: the program that trained a run, its machine, its times, and its ending. Written when a run starts, when it resumes,
// and at the end. A run that was killed has the ending "running".
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "apps/schema/json.h"

namespace halfstep::app {

inline constexpr size_t kMostRecordBytes = size_t(16) << 20;  // most bytes of run.json to read

class RunRecord {
 public:
  // facts: "device", "threads", "ranks", and what logging.machine allows. continues: keeps the newest 100 earlier starts. Throws
  // IoError.
  RunRecord(std::filesystem::path path, const Json& facts, int64_t step, bool continues);
  // Writes the ending, the time and the summary. Warns if the file cannot be written.
  void end(const std::string& ending, const Json& summary);

 private:
  std::filesystem::path path_;
  Json json_;
};

// Returns this process's command line, one string for each argument.
Json command_line();

}  // namespace halfstep::app
