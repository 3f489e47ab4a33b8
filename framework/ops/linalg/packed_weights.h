// SPDX-License-Identifier: Apache-2.0
// Weights in the fastest layout for matrix products, kept for later calls until they change.
#pragma once

#include <cstdint>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns GemmArgs::packed for a product of `rows` rows with b, a view [k, n] of a weight. Undefined outside of InferenceMode, if
// the product gains nothing by it, and in the first call, because the memory pays only from the second call on. b's storage owns
// it, and the next in-place write drops it. The last bits of the product may differ from those without it.
Tensor packed_weight(const Tensor& b, int64_t rows);

}  // namespace halfstep
