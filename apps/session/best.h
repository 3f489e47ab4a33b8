// SPDX-License-Identifier: Apache-2.0
// Chooses the best checkpoints of a run. A later one is preferred if the difference is insignificant: for equal values, and for
// shares (accuracy and the like) within a standard error of the best so far, sqrt(p (1 - p) / n) for n validation samples, and at
// least one sample. On small data an early checkpoint often has the best share by chance, though the model is not trained yet.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "apps/schema/json.h"
#include "framework/io/checkpoint/stored_json.h"

namespace halfstep::app {

struct BestCheckpoint {
  double value;        // of checkpoint.monitor
  int64_t step;        // number of applied steps, which names the checkpoint
  int64_t epoch = -1;  // in which it was written, from 1; -1: an older halfstep did not store it
};

struct BestCheckpoints {
  std::vector<BestCheckpoint> list;  // best first; at most checkpoint.keep_best
  std::optional<double> top;         // best value so far, which list[0] may miss by a standard error

  int64_t step() const { return list.empty() ? -1 : list[0].step; }
};

struct BestRule {
  bool larger_is_better = false;
  int64_t samples = 0;  // number of samples of a share; 0: the value is not a share
  int64_t keep = 1;     // most checkpoints

  // Returns the standard error of a share, at least 1 / samples; 0 for another value.
  double standard_error(double value) const;
  // Returns the list with a later checkpoint inserted; nothing if it is not among the best.
  std::optional<BestCheckpoints> with(BestCheckpoints bests, const BestCheckpoint& now) const;
};

// Write the best checkpoints to the state of a trainer, and read them. Reading throws CheckpointError.
void store(Json& trainer, const BestCheckpoints& bests);
BestCheckpoints stored_bests(const StoredJson& trainer);

}  // namespace halfstep::app
