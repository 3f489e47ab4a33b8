// SPDX-License-Identifier: Apache-2.0
// Where metrics go: each sink takes the same entries, JSON objects of numbers by name, and writes them in its own form.
#pragma once

#include <cstdint>

#include "apps/record/appended_file.h"
#include "apps/schema/json.h"

namespace halfstep::app {

// Where a run continues: the lines that the file already has, and the best checkpoint.
struct ResumePoint {
  int64_t step = 0;             // tried ones
  int64_t last_log_step = -1;   // whether a training line of `step` is already written
  int64_t last_eval_step = -1;  // the same of an evaluation
  int64_t best_step = -1;       // whose checkpoint is the best; -1: none
  int64_t applied = 0;          // of `step`
  int64_t epoch = 0;            // finished ones: their lines are already written
};

class MetricSink {
 public:
  virtual ~MetricSink() = default;
  // Writes the whole entry or nothing. The first failure prints a warning; training continues, and lost() counts.
  virtual void write(const Json& entry) = 0;
  virtual void sync() = 0;  // to the disk; a failure counts as an entry lost
  virtual int64_t lost() const = 0;
};

// A sink that appends to one file.
class FileSink : public MetricSink {
 public:
  void sync() override { file_.sync(); }
  int64_t lost() const override { return file_.lost(); }

 protected:
  AppendedFile file_;
};

// An entry that a file has when a run resumes: written before that point, to be written again, or not one of a run.
enum class Place : uint8_t { before, again, foreign };
Place place_of(const Json& entry, const ResumePoint& from);

}  // namespace halfstep::app
