// SPDX-License-Identifier: Apache-2.0
// Averages of the weights (train.ema, train.swa) as a checkpoint has them.
#pragma once

#include "framework/io/checkpoint/checkpoint.h"
#include "layers/module/named_tensors.h"

namespace halfstep::app {

inline constexpr const char* kAveragePrefix = "average.";  // of statistics for the averaged weights, in a state

// Replaces weights in `state` by the averages that the checkpoint has of them, and statistics of norms by those for the averages.
// Returns the number of replaced weights.
int use_averages(const CheckpointContents& contents, StateDict& state);

}  // namespace halfstep::app
