// SPDX-License-Identifier: Apache-2.0
// Attention by the device's library, where it has one that takes the call (AttentionLibrary of framework/backend/dnn.h).
#pragma once

#include <array>

#include "framework/base/generator.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// As AttentionArgs, with tensors.
struct LibraryAttention {
  Tensor q, k, v;
  double scale = 1;
  bool causal = false;
  double dropout_p = 0;
};

// The result, laid out as q is, and statistics that the backward takes; both undefined where there is no library for it.
struct LibraryOutput {
  Tensor out, stats;
};
LibraryOutput library_attention(const LibraryAttention& a, Generator::State state, bool differentiable);
// The gradients of q, k and v, in `wanted` where the library can write it. Empty where it declines. Throws DeviceError where it
// declines what it has dropped out itself.
Tensors library_attention_backward(const LibraryAttention& a, Generator::State state, const Tensor& out, const Tensor& stats,
                                   const Tensor& grad, const std::array<DType, 3>& wanted);

}  // namespace halfstep
