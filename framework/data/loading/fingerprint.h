// SPDX-License-Identifier: Apache-2.0
// Are the samples of a data set still those that a run was trained with?
#pragma once

#include <string>

#include "framework/data/sets/dataset.h"

namespace halfstep {

// SHA-256 of what can be read of a data set in a bounded time, before transforms: its size and shapes, all labels that it knows
// without making batches, and samples that are spread evenly, as many as 8 MiB hold. In a smaller data set these are all, so that
// any other value is seen; in a larger one a change of few samples may be missed.
std::string fingerprint(const Dataset& data);

}  // namespace halfstep
