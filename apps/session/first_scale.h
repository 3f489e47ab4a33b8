// SPDX-License-Identifier: Apache-2.0
// Chooses the first loss scale if amp.scaler.init_scale is "auto".
#pragma once

#include "amp/step/train_step.h"
#include "apps/session/session.h"

namespace halfstep::app {

// Returns half of the largest scale under which no 16-bit gradient of the first eight batches overflows, but at most the default
// first scale: a larger one gains nothing, as real models lose hardly any gradient at 65536. The margin is for gradients that grow
// at the end of warm-up and between batches; after that the scaler adapts. With a group all ranks call it, and get the smallest of
// their scales. Restores the session, but leaves the model in training mode. docs/amp.md#the-first-loss-scale
double first_scale(const GradScalerOptions& options, Session& session, TrainStep& step, ProcessGroup* group);

}  // namespace halfstep::app
