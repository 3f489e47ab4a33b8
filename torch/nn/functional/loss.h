// SPDX-License-Identifier: Apache-2.0
// Losses.
#pragma once

#include "torch/nn/functional/base.h"

namespace torch::nn::functional {

// ---- losses
#define HS_LOSS(name, Options, expr) \
  inline Tensor name(const Tensor& x, const Tensor& t, const Options& o = {}) { return expr; }
using L1LossFuncOptions = L1LossOptions;
using MSELossFuncOptions = MSELossOptions;
using KLDivFuncOptions = KLDivLossOptions;
using BinaryCrossEntropyFuncOptions = BCELossOptions;
using BinaryCrossEntropyWithLogitsFuncOptions = BCEWithLogitsLossOptions;
using SmoothL1LossFuncOptions = SmoothL1LossOptions;
using HuberLossFuncOptions = HuberLossOptions;
using NLLLossFuncOptions = NLLLossOptions;
using CrossEntropyFuncOptions = CrossEntropyLossOptions;
using HingeEmbeddingLossFuncOptions = HingeEmbeddingLossOptions;
using MultiMarginLossFuncOptions = MultiMarginLossOptions;
using CosineEmbeddingLossFuncOptions = CosineEmbeddingLossOptions;
using MultilabelMarginLossFuncOptions = MultiLabelMarginLossOptions;
using SoftMarginLossFuncOptions = SoftMarginLossOptions;
using MultilabelSoftMarginLossFuncOptions = MultiLabelSoftMarginLossOptions;
using TripletMarginLossFuncOptions = TripletMarginLossOptions;
using TripletMarginWithDistanceLossFuncOptions = TripletMarginWithDistanceLossOptions;
using CTCLossFuncOptions = CTCLossOptions;
using PoissonNLLLossFuncOptions = PoissonNLLLossOptions;
using MarginRankingLossFuncOptions = MarginRankingLossOptions;
HS_LOSS(l1_loss, L1LossFuncOptions, hs::l1_loss(x.h(), t.h(), detail::reduction(o.reduction())))
HS_LOSS(mse_loss, MSELossFuncOptions, hs::mse_loss(x.h(), t.h(), detail::reduction(o.reduction())))
HS_LOSS(soft_margin_loss, SoftMarginLossFuncOptions, hs::soft_margin_loss(x.h(), t.h(), detail::reduction(o.reduction())))
HS_LOSS(multilabel_margin_loss, MultilabelMarginLossFuncOptions,
        hs::multilabel_margin_loss(x.h(), t.h(), detail::reduction(o.reduction())))
HS_LOSS(binary_cross_entropy, BinaryCrossEntropyFuncOptions,
        hs::binary_cross_entropy(x.h(), detail::shaped_as(x.h(), t.h()), o.weight().h(), detail::reduction(o.reduction())))
inline Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& t,
                                               const BinaryCrossEntropyWithLogitsFuncOptions& o = {}) {
  TORCH_CHECK(t.sizes() == x.sizes(), "Target size (", t.sizes(), ") must be the same as input size (", x.sizes(), ")");
  return hs::binary_cross_entropy_with_logits(
      x.h(), t.h(), {.weight = o.weight().h(), .pos_weight = o.pos_weight().h(), .reduction = detail::reduction(o.reduction())});
}
HS_LOSS(smooth_l1_loss, SmoothL1LossFuncOptions, hs::smooth_l1_loss(x.h(), t.h(), detail::reduction(o.reduction()), o.beta()))
inline Tensor smooth_l1_loss(const Tensor& x, const Tensor& t, const SmoothL1LossFuncOptions& o, double beta) {
  return hs::smooth_l1_loss(x.h(), t.h(), detail::reduction(o.reduction()), beta);
}
HS_LOSS(huber_loss, HuberLossFuncOptions, hs::huber_loss(x.h(), t.h(), detail::reduction(o.reduction()), o.delta()))
HS_LOSS(nll_loss, NLLLossFuncOptions,
        hs::nll_loss(x.h(), t.h(),
                     {.weight = o.weight().h(), .ignore_index = o.ignore_index(), .reduction = detail::reduction(o.reduction())}))
HS_LOSS(cross_entropy, CrossEntropyFuncOptions,
        hs::cross_entropy(x.h(), t.h(),
                          {.weight = o.weight().h(),
                           .ignore_index = o.ignore_index(),
                           .reduction = detail::reduction(o.reduction()),
                           .label_smoothing = o.label_smoothing()}))
HS_LOSS(hinge_embedding_loss, HingeEmbeddingLossFuncOptions,
        hs::hinge_embedding_loss(x.h(), t.h(), o.margin(), detail::reduction(o.reduction())))
HS_LOSS(multi_margin_loss, MultiMarginLossFuncOptions,
        hs::multi_margin_loss(
            x.h(), t.h(),
            {.p = o.p(), .margin = o.margin(), .weight = o.weight().h(), .reduction = detail::reduction(o.reduction())}))
HS_LOSS(multilabel_soft_margin_loss, MultilabelSoftMarginLossFuncOptions,
        hs::multilabel_soft_margin_loss(x.h(), t.h(), o.weight().h(), detail::reduction(o.reduction())))
HS_LOSS(poisson_nll_loss, PoissonNLLLossFuncOptions,
        hs::poisson_nll_loss(
            x.h(), t.h(),
            {.log_input = o.log_input(), .full = o.full(), .eps = o.eps(), .reduction = detail::reduction(o.reduction())}))
#undef HS_LOSS
inline Tensor kl_div(const Tensor& x, const Tensor& t, const KLDivFuncOptions& o = {}) {
  const std::string n = enumtype::get_enum_name(o.reduction());
  return hs::kl_div(x.h(), t.h(),
                    n == "kNone"   ? hs::KlReduction::none
                    : n == "kMean" ? hs::KlReduction::mean
                    : n == "kSum"  ? hs::KlReduction::sum
                                   : hs::KlReduction::batchmean,
                    o.log_target());
}
inline Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& t,
                                    const CosineEmbeddingLossFuncOptions& o = {}) {
  return hs::cosine_embedding_loss(a.h(), b.h(), t.h(), o.margin(), detail::reduction(o.reduction()));
}
inline Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& t, const MarginRankingLossFuncOptions& o = {}) {
  return hs::margin_ranking_loss(a.h(), b.h(), t.h(), o.margin(), detail::reduction(o.reduction()));
}
inline Tensor triplet_margin_loss(const Tensor& a, const Tensor& p, const Tensor& n, const TripletMarginLossFuncOptions& o = {}) {
  return hs::triplet_margin_loss(
      a.h(), p.h(), n.h(),
      {.margin = o.margin(), .p = o.p(), .eps = o.eps(), .swap = o.swap(), .reduction = detail::reduction(o.reduction())});
}
inline Tensor triplet_margin_with_distance_loss(const Tensor& a, const Tensor& p, const Tensor& n,
                                                const TripletMarginWithDistanceLossFuncOptions& o = {}) {
  auto d = [&](const Tensor& x, const Tensor& y) -> Tensor {
    return o.distance_function() ? (*o.distance_function())(x, y) : Tensor(hs::pairwise_distance(x.h(), y.h()));
  };
  const Tensor plus = d(a, p);
  Tensor minus = d(a, n);
  if (o.swap()) minus = minus.min(d(p, n));
  const Tensor loss = (plus - minus + o.margin()).clamp_min(0);
  const std::string r = enumtype::get_enum_name(o.reduction());
  return r == "kNone" ? loss : r == "kMean" ? loss.mean() : loss.sum();
}
inline Tensor ctc_loss(const Tensor& x, const Tensor& t, const Tensor& in, const Tensor& tl, const CTCLossFuncOptions& o = {}) {
  return hs::ctc_loss(x.h(), t.h(), in.h(), tl.h(),
                      {.blank = o.blank(), .reduction = detail::reduction(o.reduction()), .zero_infinity = o.zero_infinity()});
}

}  // namespace torch::nn::functional
