// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a halfstep that named all branches of a Parallel by their numbers.
#pragma once

#include "framework/io/checkpoint/checkpoint.h"
#include "layers/module/module.h"

namespace halfstep::app {

// The same contents, in which the branches of a Parallel have their names in this model, and not the numbers that halfstep 0.1.0
// gave them.
CheckpointContents with_branch_names(CheckpointContents contents, Module& model);

}  // namespace halfstep::app
