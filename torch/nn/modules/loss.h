// SPDX-License-Identifier: Apache-2.0
// Losses.
#pragma once

#include "torch/nn/modules/layer.h"

namespace torch::nn {

// Losses of an input and a target: name, function, what they print of their options.
#define HS_TORCH_LOSSES(ROW)                                                                                         \
  ROW(L1Loss, l1_loss, "")                                                                                           \
  ROW(KLDivLoss, kl_div, "") ROW(MSELoss, mse_loss, "") ROW(MultiLabelMarginLoss, multilabel_margin_loss, "")        \
      ROW(SoftMarginLoss, soft_margin_loss, "") ROW(SmoothL1Loss, smooth_l1_loss, "") ROW(HuberLoss, huber_loss, "") \
          ROW(PoissonNLLLoss, poisson_nll_loss, "") ROW(HingeEmbeddingLoss, hinge_embedding_loss, "margin=" << options.margin())
// The same with a weight, which is a buffer.
#define HS_TORCH_WEIGHTED_LOSSES(ROW)                                                                   \
  ROW(BCELoss, binary_cross_entropy, "")                                                                \
  ROW(NLLLoss, nll_loss, "") ROW(CrossEntropyLoss, cross_entropy, "")                                   \
      ROW(MultiLabelSoftMarginLoss, multilabel_soft_margin_loss, "")                                    \
          ROW(MultiMarginLoss, multi_margin_loss,                                                       \
              "p=" << options.p() << ", margin=" << options.margin() << ", weight=" << options.weight() \
                   << ", reduction=" << enumtype::get_enum_name(options.reduction()))
// Losses of two inputs and a target, or of three inputs.
#define HS_TORCH_PAIR_LOSSES(ROW)                                                                           \
  ROW(CosineEmbeddingLoss, cosine_embedding_loss, "margin=" << options.margin())                            \
  ROW(MarginRankingLoss, margin_ranking_loss, "")                                                           \
  ROW(TripletMarginLoss, triplet_margin_loss,                                                               \
      "margin=" << options.margin() << ", p=" << options.p() << ", eps=" << options.eps() << std::boolalpha \
                << ", swap=" << options.swap())                                                             \
  ROW(TripletMarginWithDistanceLoss, triplet_margin_with_distance_loss,                                     \
      "margin=" << options.margin() << std::boolalpha << ", swap=" << options.swap())

#define HS_TORCH_LOSS(Name, function, shown)               \
  struct Name##Impl : Cloneable<Name##Impl> {              \
    HS_TORCH_LAYER_DEFAULT(Name);                          \
    Tensor forward(const Tensor& x, const Tensor& target); \
  };                                                       \
  HS_TORCH_HOLDER(Name)
HS_TORCH_LOSSES(HS_TORCH_LOSS)
#undef HS_TORCH_LOSS
#define HS_TORCH_LOSS(Name, function, shown)               \
  struct Name##Impl : Cloneable<Name##Impl> {              \
    HS_TORCH_LAYER_DEFAULT(Name);                          \
    Tensor forward(const Tensor& x, const Tensor& target); \
    Tensor weight;                                         \
  };                                                       \
  HS_TORCH_HOLDER(Name)
HS_TORCH_WEIGHTED_LOSSES(HS_TORCH_LOSS)
#undef HS_TORCH_LOSS
#define HS_TORCH_LOSS(Name, function, shown)                           \
  struct Name##Impl : Cloneable<Name##Impl> {                          \
    HS_TORCH_LAYER_DEFAULT(Name);                                      \
    Tensor forward(const Tensor& a, const Tensor& b, const Tensor& c); \
  };                                                                   \
  HS_TORCH_HOLDER(Name)
HS_TORCH_PAIR_LOSSES(HS_TORCH_LOSS)
#undef HS_TORCH_LOSS

struct BCEWithLogitsLossImpl : Cloneable<BCEWithLogitsLossImpl> {
  HS_TORCH_LAYER_DEFAULT(BCEWithLogitsLoss);
  Tensor forward(const Tensor& x, const Tensor& target);
  Tensor weight, pos_weight;
};
HS_TORCH_HOLDER(BCEWithLogitsLoss)

struct CTCLossImpl : Cloneable<CTCLossImpl> {
  HS_TORCH_LAYER_DEFAULT(CTCLoss);
  Tensor forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths);
};
HS_TORCH_HOLDER(CTCLoss)

}  // namespace torch::nn
