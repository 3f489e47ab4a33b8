// SPDX-License-Identifier: Apache-2.0
// Weights as matrix products read them fastest, kept for calls in which they have not changed.
#pragma once

#include <cstdint>

#include "framework/tensor/tensor.h"

namespace halfstep {

// For GemmArgs::packed of a product of `rows` rows with b, a view [k, n] of a weight. Undefined outside of InferenceMode, where the
// product gains nothing by it, and in the first call, since the memory pays from the second one on. It belongs to b's storage: it
// goes with that, and the next in-place write drops it. The last bits of the product may differ from those without it.
Tensor packed_weight(const Tensor& b, int64_t rows);

}  // namespace halfstep
