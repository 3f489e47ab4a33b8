// SPDX-License-Identifier: Apache-2.0
// What a device's library of convolutions and attention may do. Only CUDA has one: cuDNN.
#pragma once

#include <cstdint>

#include "framework/base/check.h"
#include "framework/base/generator.h"
#include "framework/tensor/view.h"

namespace halfstep {

struct DnnOptions {
  bool benchmark = false;                  // time a few of the library's ways for each kind of convolution, and keep the fastest
  int64_t workspace = int64_t(256) << 20;  // bytes that one call of the library may take beside its tensors
};
// For all threads and all calls from now on.
void set_dnn_options(const DnnOptions& options);
DnnOptions dnn_options();

// What is recorded wants a way of the library that is not prepared yet: the same work done once without recording prepares it.
struct NotPrepared : RecordingError {
  using RecordingError::RecordingError;
};

// softmax(scale q k^T) v. q: [B, H, L, E]; k and v: [B, G, S, E], each head of theirs for H / G consecutive ones of q; any strides.
struct AttentionArgs {
  TensorView q, k, v;
  double scale = 1;
  bool causal = false;   // query i sees the keys 0 to i
  double dropout_p = 0;  // of the probabilities, by the library's own numbers, which depend on the state alone
};
struct AttentionGradients {
  TensorView out, stats;  // read: what attention() has written
  TensorView grad;        // read: the gradient of out, of q's dtype, any strides
  TensorView dq, dk, dv;  // written: of q's dtype or float32, any strides
};
// The strides in which a library reads and writes the other tensors without a copy: heads beside heads, or rows beside rows, as
// they lie in q, k and v. A model that makes q, k and v by one product has them as parts of one tensor [B, L, H + 2 G, E]; then
// their gradients are parts of such a tensor too, which is the gradient of the product's result.
struct AttentionLayout {
  Strides out, dq, dk, dv;  // of out's gradient, too: out
  bool packed = false;      // dq, dk and dv lie in one tensor, at the places of q, k and v
};
AttentionLayout layout_of(const AttentionArgs& args);

// Backends with a library for fused attention also implement this interface. Each function returns false and does nothing
// if the library declines or there is no memory for its workspace; every run gives the same bits. Only attention_backward with
// dropout throws MemoryError instead, since there is no other way to compute it.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  // out [B, H, L, E], any strides; stats [B, H, L] f32: of each row of scores the logarithm of the sum of its exponentials.
  // `differentiable`: attention_backward will be called, and with dropout must succeed, as nothing else knows what was dropped.
  virtual bool attention(const AttentionArgs& args, Generator::State state, const TensorView& out, const TensorView& stats,
                         bool differentiable) = 0;
  virtual bool attention_backward(const AttentionArgs& args, Generator::State state, const AttentionGradients& gradients) = 0;
};

}  // namespace halfstep
