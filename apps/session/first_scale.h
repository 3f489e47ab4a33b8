// SPDX-License-Identifier: Apache-2.0
// The loss scale of a run whose amp.scaler.init_scale is "auto".
#pragma once

#include "amp/step/train_step.h"
#include "apps/session/session.h"

namespace halfstep::app {

// Half of the largest scale under which no 16-bit gradient of the first eight batches overflows, and at most the scale that the run
// would begin with otherwise: a larger one gains nothing, as hardly a gradient of real models is lost under 65536. Gradients grow
// when warm-up ends, and the batches of an epoch differ by a few powers of two; the scaler follows as ever. With a group all ranks
// call it, and get the least of their scales. Leaves the session as it was, but for the model in training mode.
// docs/amp.md#the-first-loss-scale
double first_scale(const GradScalerOptions& options, Session& session, TrainStep& step, ProcessGroup* group);

}  // namespace halfstep::app
