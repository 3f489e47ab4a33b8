// SPDX-License-Identifier: Apache-2.0
// Lines of a run while it trains: lines and a bar for a person, and the training lines of metrics.jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/terminal/progress.h"
#include "apps/train/run_context.h"

namespace halfstep::app {

// Returns "accuracy 97.31 %".
std::string shown(const MetricValue& metric);
// Returns null for infinity and NaN, which JSON lacks.
Json or_null(const std::optional<double>& value);

class RunLines {
 public:
  explicit RunLines(RunContext& run);

  void introduce() const;
  void begin() { logged_.samples = run_.counters.samples; }
  // Redraws a terminal's bar with known values. It reads no losses, which would cost a GPU its lead.
  void show(bool evaluates = false);
  void log(bool epoch_end);  // writes a line of metrics.jsonl and one for a person; outcomes must have been read
  void log_epoch();          // writes the line of an epoch at which no other is due; the training line's window stays open
  void end_epoch(bool evaluated, bool is_best);  // prints the line of an epoch
  void end() { epochs_.end(); }                  // prints pending lines

 private:
  std::vector<LinePart> epoch_parts(bool evaluated) const;

  RunContext& run_;
  EpochLines epochs_;
  struct {
    double seconds = 0, wait = 0, rank_wait = 0;
    int64_t samples = 0;
  } logged_;  // at the last line of metrics.jsonl: time of training and of waiting for data and ranks, and samples
};

}  // namespace halfstep::app
