// SPDX-License-Identifier: Apache-2.0
// Prints the end of a run, and makes its summary.
#pragma once

#include <cstdint>

#include "apps/train/run_context.h"

namespace halfstep::app {

enum class Ending : uint8_t { finished, interrupted, requeue };  // requeue: a batch system is to start it again

struct TrainSummary {
  Ending ending = Ending::finished;
  Json json;  // "val.accuracy", "val.loss", "steps_applied", ...
};

class RunEnding {
 public:
  explicit RunEnding(RunContext& run) : run_(run) {}

  // Makes the summary. The mean loss of an incomplete epoch becomes the counters' train_loss.
  TrainSummary summary(Ending ending) const;
  // Prints the last lines of a run that was not interrupted. skips_in_row: of its last steps.
  void report(const Json& summary, int64_t skips_in_row) const;

 private:
  Json best_json() const;
  void warn_of_scale(int64_t skips_in_row) const;
  void warn_of_no_progress() const;
  void print_next_commands() const;

  RunContext& run_;
};

}  // namespace halfstep::app
