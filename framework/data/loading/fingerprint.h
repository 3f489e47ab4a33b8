// SPDX-License-Identifier: Apache-2.0
// Checks whether the samples of a data set are still those with which a run was trained.
#pragma once

#include <string>

#include "framework/data/sets/dataset.h"

namespace halfstep {

// Returns the SHA-256 of what can be read of a data set in bounded time, before transforms: its size and shapes, all labels known
// without making batches, and evenly spread samples of up to 8 MiB. In a smaller data set these are all samples, so any change is
// seen; in a larger one a change of few samples may be missed.
std::string fingerprint(const Dataset& data);

}  // namespace halfstep
