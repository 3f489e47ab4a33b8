// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object a line, each with the applied steps before it ("step") and the steps tried ("attempted").
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "apps/schema/json.h"

namespace halfstep::app {

// Where a run continues: the lines that the file already has, and the best checkpoint.
struct ResumePoint {
  int64_t step = 0;             // tried ones
  int64_t last_log_step = -1;   // whether a training line of `step` is already written
  int64_t last_eval_step = -1;  // the same of an evaluation
  int64_t best_step = -1;       // whose checkpoint is the best; -1: none
};

class MetricsFile {
 public:
  MetricsFile() = default;  // takes lines and writes none
  // Keeps the lines of the run up to `from`, and warns of lines that are not metrics of a run. Throws IoError.
  MetricsFile(const std::filesystem::path& path, const ResumePoint& from);
  ~MetricsFile();
  MetricsFile(MetricsFile&& other) noexcept;
  MetricsFile& operator=(MetricsFile&& other) noexcept;

  // Writes the whole line or nothing. The first failure prints a warning; training continues, and lost() counts.
  void write(const Json& entry);
  void sync();  // to the disk; a failure counts as a line lost
  int64_t lost() const { return lost_; }

 private:
  void lose(int error);

  std::filesystem::path path_;
  int fd_ = -1;
  bool torn_ = false;  // the file ends with a part of a line that could not be removed
  int64_t lost_ = 0;
};

}  // namespace halfstep::app
