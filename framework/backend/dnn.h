// SPDX-License-Identifier: Apache-2.0
// A device's library for convolutions and attention: its options, and the calls of its attention. Only CUDA has one: cuDNN.
#pragma once

#include <cstdint>
#include <span>

#include "framework/base/check.h"
#include "framework/base/generator.h"
#include "framework/tensor/view.h"

namespace halfstep {

struct DnnOptions {
  bool benchmark = false;                  // times a few algorithms for each kind of convolution and keeps the fastest
  int64_t workspace = int64_t(256) << 20;  // bytes that one call of the library may allocate
};
// Sets the options for all threads and later calls.
void set_dnn_options(const DnnOptions& options);
DnnOptions dnn_options();

// Recorded work needs an algorithm of the library that is not prepared yet; running it once without recording prepares it.
struct NotPrepared : RecordingError {
  using RecordingError::RecordingError;
};

// softmax(scale q k^T) v. q: [B, H, L, E]; k and v: [B, G, S, E], where each of their heads serves H / G consecutive heads of q;
// any strides.
struct AttentionArgs {
  TensorView q, k, v;
  double scale = 1;
  bool causal = false;   // query i sees keys 0 to i
  double dropout_p = 0;  // dropout of the probabilities, by the library's own random numbers, which depend only on the state
};
struct AttentionGradients {
  TensorView out, stats;  // read: as attention() has written them
  TensorView grad;        // read: the gradient of out, of q's dtype, any strides
  TensorView dq, dk, dv;  // written: in q's dtype or float32, any strides
};
// The strides of the output and the gradients with which the library needs no copies: heads or rows side by side, as in q, k and v.
// If q, k and v are parts of one tensor [B, L, H + 2 G, E], as one product makes them, then dq, dk and dv are the same parts of
// another such tensor, which is the gradient of the product's result.
struct AttentionLayout {
  Strides out, dq, dk, dv;  // `out` also for out's gradient
  bool packed = false;      // whether dq, dk and dv are in one tensor, at the places of q, k and v
};
AttentionLayout layout_of(const AttentionArgs& args);

// Returns whether cuDNN takes such a call on a GPU of compute capability 8.0 or later, as far as dtypes and shapes decide.
bool is_for_library(const AttentionArgs& args);
// How to divide a call so that the scores kept by the gradient fit into the workspace: into pieces of some samples with all their
// heads, or of one sample and some key heads with the queries that share them. Each head is computed as before.
struct AttentionDivision {
  int64_t samples = 0, key_heads = 0;  // 0: even one key head is too much
};
// Returns the division for q [B, H, L, ...] and k [B, G, S, ...]. workspace: bytes.
AttentionDivision attention_division(std::span<const int64_t> q, std::span<const int64_t> k, int64_t workspace);
// Returns the bytes of workspace that the library needs for the gradient of one head of q.
int64_t attention_workspace(int64_t queries, int64_t keys);

// Implemented by backends with a library for fused attention. Each function returns false and does nothing if the library declines
// or there is no memory for its workspace; every run gives the same bits. Only attention_backward with dropout throws MemoryError
// instead, because there is no other way to compute it.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  // Computes out [B, H, L, E], with any strides, and stats [B, H, L] f32: the logarithm of the sum of exponentials of each row of
  // scores. `differentiable`: attention_backward will be called, and with dropout must succeed, because nothing else has recorded
  // what was dropped.
  virtual bool attention(const AttentionArgs& args, Generator::State state, const TensorView& out, const TensorView& stats,
                         bool differentiable) = 0;
  virtual bool attention_backward(const AttentionArgs& args, Generator::State state, const AttentionGradients& gradients) = 0;
};

}  // namespace halfstep
