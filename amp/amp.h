// SPDX-License-Identifier: Apache-2.0
// Mixed precision and training steps: autocast regions, the gradient scaler, TrainStep, data parallelism, the state of a run. Adds
// torch.amp's names: amp::autocast, amp::GradScaler.
#pragma once

#include "amp/autocast/autocast.h"
#include "amp/step/custom.h"
#include "amp/step/data_parallel.h"
#include "amp/step/grad_scaler.h"
#include "amp/step/param_groups.h"
#include "amp/step/recomputation.h"
#include "amp/step/run_state.h"
#include "amp/step/train_step.h"

namespace halfstep::amp {

using autocast = Autocast;
using halfstep::GradScaler;

}  // namespace halfstep::amp
