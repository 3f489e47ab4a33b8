// SPDX-License-Identifier: Apache-2.0
// Distances, pixels, resampling, the adaptive softmax, and attention.
#pragma once

#include "torch/nn/modules/linear.h"

namespace torch::nn {

#define HS_TORCH_DISTANCE(Name)                       \
  struct Name##Impl : Cloneable<Name##Impl> {         \
    HS_TORCH_LAYER_DEFAULT(Name);                     \
    Tensor forward(const Tensor& a, const Tensor& b); \
  };                                                  \
  HS_TORCH_HOLDER(Name)
HS_TORCH_DISTANCE(CosineSimilarity)
HS_TORCH_DISTANCE(PairwiseDistance)
#undef HS_TORCH_DISTANCE

#define HS_TORCH_PIXELS(Name)                 \
  struct Name##Impl : Cloneable<Name##Impl> { \
    HS_TORCH_LAYER(Name);                     \
    Tensor forward(const Tensor& x);          \
  };                                          \
  HS_TORCH_HOLDER(Name)
    HS_TORCH_PIXELS(PixelShuffle) HS_TORCH_PIXELS(PixelUnshuffle)
#undef HS_TORCH_PIXELS

        struct FoldImpl : Cloneable<FoldImpl> {
  HS_TORCH_LAYER(Fold);
  FoldImpl(ExpandingArray<2> output_size, ExpandingArray<2> kernel_size) : FoldImpl(FoldOptions(output_size, kernel_size)) {}
  Tensor forward(const Tensor& x);
};
HS_TORCH_HOLDER(Fold)
struct UnfoldImpl : Cloneable<UnfoldImpl> {
  HS_TORCH_LAYER(Unfold);
  UnfoldImpl(ExpandingArray<2> kernel_size) : UnfoldImpl(UnfoldOptions(kernel_size)) {}
  Tensor forward(const Tensor& x);
};
HS_TORCH_HOLDER(Unfold)
HS_TORCH_FUNCTION_LAYER(Upsample)

struct ASMoutput {
  ASMoutput(Tensor o, double l) : output(std::move(o)), loss(l) {}
  Tensor output;
  double loss;
};
struct AdaptiveLogSoftmaxWithLossImpl : Cloneable<AdaptiveLogSoftmaxWithLossImpl> {
  HS_TORCH_LAYER(AdaptiveLogSoftmaxWithLoss);
  AdaptiveLogSoftmaxWithLossImpl(int64_t in_features, int64_t n_classes, std::vector<int64_t> cutoffs)
      : AdaptiveLogSoftmaxWithLossImpl(AdaptiveLogSoftmaxWithLossOptions(in_features, n_classes, std::move(cutoffs))) {}
  void reset_parameters();
  Tensor log_prob(const Tensor& x);
  ASMoutput forward(const Tensor& x, const Tensor& target);
  Tensor predict(const Tensor& x);
  std::vector<int64_t> cutoffs;
  int64_t shortlist_size = 0, n_clusters = 0, head_size = 0;
  Linear head = nullptr;
  ModuleList tail = nullptr;
};
HS_TORCH_HOLDER(AdaptiveLogSoftmaxWithLoss)

struct MultiheadAttentionImpl : Cloneable<MultiheadAttentionImpl> {
  HS_TORCH_LAYER(MultiheadAttention);
  MultiheadAttentionImpl(int64_t embed_dim, int64_t num_heads)
      : MultiheadAttentionImpl(MultiheadAttentionOptions(embed_dim, num_heads)) {}
  void _reset_parameters();
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const Tensor& key_padding_mask = {}, bool need_weights = true, const Tensor& attn_mask = {},
                                     bool average_attn_weights = true);
  bool _qkv_same_embed_dim = true;
  Tensor in_proj_weight, in_proj_bias, bias_k, bias_v, q_proj_weight, k_proj_weight, v_proj_weight;
  Linear out_proj = nullptr;
  int64_t head_dim = 0;
  FORWARD_HAS_DEFAULT_ARGS({3, AnyValue(Tensor())}, {4, AnyValue(true)}, {5, AnyValue(Tensor())}, {6, AnyValue(true)})
};
HS_TORCH_HOLDER(MultiheadAttention)

}  // namespace torch::nn
