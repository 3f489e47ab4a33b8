// SPDX-License-Identifier: Apache-2.0
// What follows from the kernel where values went bad, whatever the precision.
#pragma once

#include "amp/diagnosis/diagnose.h"

namespace halfstep {

// Of a step whose float32 arm is not finite.
Diagnosis verdict_of_origin(const ArmResult& arm, const StepHistory& history);

// "fc1", or "the loss".
std::string place_of(const ArmResult& arm);

}  // namespace halfstep
