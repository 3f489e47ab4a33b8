// SPDX-License-Identifier: Apache-2.0
// Attention by the device's library, if it has one that accepts the call (AttentionLibrary of framework/backend/dnn.h).
#pragma once

#include <array>

#include "framework/base/generator.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Like AttentionArgs, with tensors.
struct LibraryAttention {
  Tensor q, k, v;
  double scale = 1;
  bool causal = false;
  double dropout_p = 0;
};

// The result, in the layout of q, and statistics for backward; both undefined if no library computed it.
struct LibraryOutput {
  Tensor out, stats;
};
// Calls the library. differentiable: whether library_attention_backward may follow.
LibraryOutput library_attention(const LibraryAttention& attention, Generator::State state, bool differentiable);
// Returns the gradients of q, k and v, in `wanted` if the library can write that. Returns empty if it declines; throws DeviceError
// if it declines a call whose dropout it has drawn.
Tensors library_attention_backward(const LibraryAttention& attention, Generator::State state, const Tensor& out,
                                   const Tensor& stats, const Tensor& grad, const std::array<DType, 3>& wanted);

}  // namespace halfstep
