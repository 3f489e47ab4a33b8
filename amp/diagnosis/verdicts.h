// SPDX-License-Identifier: Apache-2.0
// Causes that follow from the kernel which wrote the first bad value, in any precision.
#pragma once

#include "amp/diagnosis/diagnose.h"

namespace halfstep {

// Diagnoses a step whose float32 replay is not finite.
Diagnosis verdict_of_origin(const StepReplayResult& replay, const StepHistory& history);

// Returns "fc1", or "the loss".
std::string place_of(const StepReplayResult& replay);

}  // namespace halfstep
