// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN's fused graphs, which keep scores and probabilities inside the kernel. The contracts are those of
// AttentionLibrary (framework/backend/dnn.h).
#pragma once

#include <memory>

#include "cuda/dnn/cache.h"
#include "cuda/dnn/graph.h"
#include "cuda/kernels/kernels.h"
#include "framework/backend/dnn.h"

namespace halfstep::cuda::dnn {

// How often a padding mask hides the scores beyond the lengths of queries and keys. The lengths are those before keys were padded
// (padded_keys), or those of the tensors: then the mask changes no result, but some versions of cuDNN read beyond the tensors
// without it. `twice`: also after each row's logarithm is subtracted.
enum class PaddingMask : uint8_t { none, once, twice };

// softmax(scale q k^T) v for B samples of L queries and S keys, with E numbers in each of H heads of q and G heads of k and v; G
// divides H.
struct AttentionProblem {
  cudnnDataType_t type = CUDNN_DATA_HALF;
  Numbers q, k;  // [B, H, L, E]; and also for v: [B, G, S, E]
  Numbers q_strides, k_strides, v_strides;
  Numbers out_strides = {}, dq_strides = {}, dk_strides = {}, dv_strides = {};  // empty: contiguous. out's gradient has out_strides
  bool causal = false;
  double dropout = 0;
  float scale = 1;
  PaddingMask mask = PaddingMask::none;  // for the gradient

  PlanKey key(bool backward) const;
};
// Builds the forward graph. Its tensors in memory, in this order: q, k, v, out, stats [B, H, L, 1] and, with dropout, seed and
// offset (int64).
std::unique_ptr<OpGraph> attention_graph(const AttentionProblem& problem);
// Builds the backward graph. Its tensors in memory: q, k, v, out, stats, grad, dq, dk, dv, sums [B, H, L, 1] in float32 as
// scratch; with a padding mask L and S, each B times as int32 [B, 1, 1, 1]; if heads share keys, dk and dv of each head; with
// dropout, seed and offset. Sums have a fixed order: the same bits in every run, for L S numbers of workspace per head.
std::unique_ptr<OpGraph> attention_backward_graph(const AttentionProblem& problem);

// A call, as far as defects of the library depend on it.
struct AttentionCase {
  size_t version = 0;  // of cuDNN: 91900 is 9.19.0
  int capability = 0;  // of the GPU: 90 is 9.0
  int64_t queries = 0, keys = 0, width = 0;
  bool drops = false, backward = false;
};
struct AttentionDefect {
  size_t first, last;   // affected versions of cuDNN
  int lowest, highest;  // affected GPUs, by capability
  bool backward_only;
  bool (*concerns)(const AttentionCase&);
  const char* what;    // "<version> ...", for a warning
  const char* remedy;  // null: no warning, because the chunks lose nothing
};
// Returns the first known defect that such a call would hit; null: none, so the library may compute it.
const AttentionDefect* defect_of(const AttentionCase& c);
inline bool sound(const AttentionCase& c) { return !defect_of(c); }
// Returns the number of keys with which such a gradient is computed: more than there are, of zeros and hidden by a padding mask,
// where the library's kernels are wrong for that number.
int64_t padded_keys(const AttentionCase& c);
// Returns the mask that makes such a gradient correct.
PaddingMask padding_mask(const AttentionCase& c);

bool attention(const Queue& q, const AttentionArgs& args, Generator::State state, const TensorView& out, const TensorView& stats,
               bool differentiable);
bool attention_backward(const Queue& q, const AttentionArgs& args, Generator::State state, const AttentionGradients& gradients);

}  // namespace halfstep::cuda::dnn
