// SPDX-License-Identifier: Apache-2.0
// torch.amp's names: amp::autocast, amp::GradScaler.
#pragma once

#include "amp/autocast/autocast.h"
#include "amp/step/grad_scaler.h"

namespace halfstep::amp {

using autocast = Autocast;
using halfstep::GradScaler;

}  // namespace halfstep::amp
