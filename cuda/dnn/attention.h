// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN's fused graphs: scores and probabilities live in the kernel. The contracts are those of AttentionLibrary
// (framework/backend/dnn.h).
#pragma once

#include <memory>

#include "cuda/dnn/cache.h"
#include "cuda/dnn/graph.h"
#include "cuda/kernels/kernels.h"
#include "framework/backend/dnn.h"

namespace halfstep::cuda::dnn {

// softmax(scale q k^T) v with the heads of q a multiple of those of k and v.
struct AttentionProblem {
  cudnnDataType_t type = CUDNN_DATA_HALF;
  Numbers q, k;                             // [B, H, L, E] and, of v too, [B, G, S, E]
  Numbers q_strides, k_strides, v_strides;  // outputs and their companions are contiguous
  bool causal = false;
  double dropout = 0;
  float scale = 1;

  Key key(bool backward) const;
};
// Its tensors in memory, in this order: q, k, v, out, stats [B, H, L, 1] and, of dropout, seed and offset (int64).
std::unique_ptr<Graph> attention_graph(const AttentionProblem& problem);
// q, k, v, out, stats, grad, dq, dk, dv, sums [B, H, L, 1] in float32 to work in and, of dropout, seed and offset. All is added in
// an order of its own: the same bits in every run, for L S numbers of workspace a head.
std::unique_ptr<Graph> attention_backward_graph(const AttentionProblem& problem);

bool attention(const Queue& q, const AttentionArgs& args, Generator::State state, const TensorView& out, const TensorView& stats,
               bool differentiable);
bool attention_backward(const Queue& q, const AttentionArgs& args, Generator::State state, const AttentionGradients& gradients);

}  // namespace halfstep::cuda::dnn
