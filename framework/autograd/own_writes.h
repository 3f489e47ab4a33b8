// SPDX-License-Identifier: Apache-2.0
// In-place writes to a tensor that are a part of forwards which use it, such as the rows that an Embedding with max_norm rescales.
// A checkpoint computes again with what they have written: they are no changes of the tensor for it.
#pragma once

#include <cstdint>
#include <span>

#include "framework/tensor/tensor.h"
#include "framework/tensor/write_log.h"

namespace halfstep {

// Counts those of the log that a forward has made to the tensors that it used.
void count_own_writes(WriteLog& log, std::span<const Tensor> used);
// Returns the version of `t` without them.
uint64_t version_without_own_writes(const Tensor& t);

}  // namespace halfstep
