// SPDX-License-Identifier: Apache-2.0
// Reads checkpoints of halfstep 0.1.0, which numbered all branches of a Parallel.
#pragma once

#include "framework/io/checkpoint/checkpoint.h"
#include "layers/module/module.h"

namespace halfstep::app {

// Returns the contents with the names that the branches of a Parallel have in this model, instead of the numbers of halfstep
// 0.1.0.
CheckpointContents with_branch_names(CheckpointContents contents, Module& model);

}  // namespace halfstep::app
