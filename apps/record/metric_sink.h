// SPDX-License-Identifier: Apache-2.0
// Destinations of metrics: each sink takes the same entries, JSON objects of numbers by name, and writes them in its format.
#pragma once

#include <cstdint>

#include "apps/record/appended_file.h"
#include "apps/schema/json.h"

namespace halfstep::app {

// The place where a run continues, for sinks: the lines that the file already has, and the best checkpoint.
struct ResumePoint {
  int64_t step = 0;             // attempted steps
  int64_t last_log_step = -1;   // `step` if its training line is already written
  int64_t last_eval_step = -1;  // `step` if its evaluation's line is already written
  int64_t best_step = -1;       // step of the best checkpoint; -1: none
  int64_t applied = 0;          // applied steps of `step`
  int64_t epoch = 0;            // finished epochs, whose lines are already written
};

class MetricSink {
 public:
  virtual ~MetricSink() = default;
  // Writes the whole entry or nothing. The first failure prints a warning; training continues, and lost() counts failures.
  virtual void write(const Json& entry) = 0;
  virtual void sync() = 0;  // to the disk; a failure counts as a lost entry
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

// The relation of a file's entry to the point of resuming: written before it, to be written again, or not of a run.
enum class EntryPlace : uint8_t { before, again, foreign };
// Classifies an entry by its attempted steps, skipped ones included. For the step itself, each kind of entry has its own mark.
EntryPlace place_of(const Json& entry, const ResumePoint& from);

}  // namespace halfstep::app
