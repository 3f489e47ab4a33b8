// SPDX-License-Identifier: Apache-2.0
// The running statistics of batch norms under the mean of weights that train.swa keeps. No forward of training has seen these
// weights, so their statistics are made anew by a pass over data.train (update_bn): before each evaluation, which uses them with
// the mean, and before each checkpoint, which holds them beside it.
#pragma once

#include "apps/session/session.h"

namespace halfstep::app {

// Does the run make them?
bool makes_averaged_statistics(const Session& session, const TrainSection& train);

// Makes those of the mean at `step`, unless it has them or there is no mean yet. All ranks call it together. Leaves weights,
// buffers, the loader and the default generator as they were.
void make_averaged_statistics(Session& session, const TrainSection& train, int64_t step, ProcessGroup* group);

// While it lives, the model's norms have them, where there are any.
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
