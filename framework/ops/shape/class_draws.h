// SPDX-License-Identifier: Apache-2.0
// Draws of classes by their weights, on the host: one pass over the weights, whose memory is that of a row.
#pragma once

#include <string_view>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Checks weights [C] or [N, C] in float32 or float64: finite, not negative, and at least `needed` of each row above 0, to draw
// `samples` of them.
void check_weights(std::string_view op, const Tensor& weights, int64_t needed, int64_t samples);

// Returns classes in the shape of `parts`, [S] or [N, S] float64 numbers in [0, 1): those whose running sum of weights first
// exceeds this part of the row's sum. Sums are in float64. A class of weight 0 is never one of them: its sum is that before it.
Tensor classes_at(const Tensor& weights, const Tensor& parts);

}  // namespace halfstep
