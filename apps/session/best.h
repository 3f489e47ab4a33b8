// SPDX-License-Identifier: Apache-2.0
// Which checkpoints of a run are the best. A later one is preferred where a difference says nothing: values that are equal, and
// shares (accuracy and the like) that lie within a standard error of the best so far, sqrt(p (1 - p) / n) for n validation samples
// and at least one sample. On small data an early checkpoint often has the best share by chance, with a model not trained yet.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "apps/schema/json.h"
#include "framework/io/checkpoint/stored_json.h"

namespace halfstep::app {

struct Best {
  double value;        // of checkpoint.monitor
  int64_t step;        // applied ones: the name of the checkpoint that has it
  int64_t epoch = -1;  // in which it was written, from 1; -1: of an older halfstep, which did not note it
};

struct Bests {
  std::vector<Best> list;     // the checkpoint.keep_best best, the best first
  std::optional<double> top;  // the best value so far, which list[0] may miss by a standard error

  int64_t step() const { return list.empty() ? -1 : list[0].step; }
};

struct BestRule {
  bool larger_is_better = false;
  int64_t samples = 0;  // that a share was measured on; 0: the value is no share
  int64_t keep = 1;

  // Returns the error of a share, 0 for another value.
  double error(double value) const;
  // Returns the list with a later checkpoint in it; nothing if it has no place there.
  std::optional<Bests> with(Bests bests, const Best& now) const;
};

// As they are stored in a checkpoint, and back. Reading throws CheckpointError.
void store(Json& trainer, const Bests& bests);
Bests stored_bests(const StoredJson& trainer);

}  // namespace halfstep::app
