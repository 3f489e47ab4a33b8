// SPDX-License-Identifier: Apache-2.0
// What a run says while it trains: lines and a bar for a person, and the training lines of metrics.jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/terminal/progress.h"
#include "apps/train/run_context.h"

namespace halfstep::app {

// "accuracy 97.31 %"
std::string shown(const MetricValue& metric);
// Infinite and NaN are no JSON.
Json or_null(const std::optional<double>& value);

class RunLines {
 public:
  explicit RunLines(RunContext& run);

  void introduce() const;
  void begin() { logged_.samples = run_.n.samples; }
  // The bar of a terminal moves between losses that are read, which costs a GPU its lead: it shows what is known.
  void show(bool evaluates = false);
  void log(bool epoch_end);  // a line of metrics.jsonl and one for a person; outcomes have been read
  void log_epoch();          // the line of an epoch at whose end no other is due; the window of the next training line stays open
  void end_epoch(bool evaluated, bool is_best);  // the line of an epoch for a person
  void end() { epochs_.end(); }                  // prints what is held back

 private:
  std::vector<LinePart> epoch_parts(bool evaluated) const;

  RunContext& run_;
  EpochLines epochs_;
  struct {
    double seconds = 0, wait = 0, rank_wait = 0;
    int64_t samples = 0;
  } logged_;  // of training, time spent waiting for data and ranks, and samples at the last line of metrics.jsonl
};

}  // namespace halfstep::app
