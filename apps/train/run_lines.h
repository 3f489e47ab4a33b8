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

  void introduce() const;                                             // prints the first lines of a run: model, data, optimizer
  void begin_interval() { logged_.samples = run_.counters.samples; }  // of the first line of metrics.jsonl
  // Redraws a terminal's bar, or prints a line at intervals, with the values that were read: reading losses would make the program
  // wait for a GPU.
  void update_bar(bool evaluates = false);
  void log(bool epoch_end);  // writes a line of metrics.jsonl and one for a person; call it once outcomes are read
  void log_epoch();          // writes the line of an epoch at which no other is due; the sums of the next training line stay
  void end_epoch(bool evaluated, bool is_best);  // prints the line of an epoch
  void print_pending() { epochs_.print_pending(); }  // prints lines of epochs that were left out so far

 private:
  void warn_of_no_average() const;
  std::vector<LinePart> epoch_parts(bool evaluated) const;

  RunContext& run_;
  EpochLines epochs_;
  struct {
    double seconds = 0, wait = 0, rank_wait = 0;
    int64_t samples = 0;
  } logged_;  // at the last line of metrics.jsonl: time of training and of waiting for data and ranks, and samples
};

}  // namespace halfstep::app
