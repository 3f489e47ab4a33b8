// SPDX-License-Identifier: Apache-2.0
// Running statistics of batch norms for the mean of weights that train.swa keeps. Training runs no forward with these weights, so
// a pass over data.train computes their statistics (update_bn): before each evaluation, which uses them with the mean, and before
// each checkpoint, which stores them beside it.
#pragma once

#include "apps/session/session.h"

namespace halfstep::app {

// Returns whether the run needs them.
bool makes_averaged_statistics(const Session& session, const TrainSection& train);

// Computes them for the mean at `step`, unless that was done or there is no mean yet. All ranks call it together. Restores
// weights, buffers, the loader and the default generator.
void make_averaged_statistics(Session& session, const TrainSection& train, int64_t step, ProcessGroup* group);

// While it lives, the model's norms have these statistics, if there are any.
class AveragedStatistics {
 public:
  [[nodiscard]] explicit AveragedStatistics(Session& session);
  ~AveragedStatistics();
  AveragedStatistics(const AveragedStatistics&) = delete;

 private:
  Session& session_;
  StateDict before_;
};

}  // namespace halfstep::app
