// SPDX-License-Identifier: Apache-2.0
// Losses with a margin between scores, distances or classes. Autocast: f32. reduction: the mean, the sum or the losses themselves
// ("none"). Targets of 1 and -1 may have any dtype.
#pragma once

#include "framework/backend/backend.h"
#include "framework/ops/core/loss_reduction.h"
#include "framework/ops/core/tensor_option.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns max(0, -y (x1 - x2) + margin); all of one shape, or 0-dim numbers
Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& y, double margin = 0,
                           LossReduction reduction = Reduction::mean);
// Returns 1 - cos(x1, x2) where y = 1, max(0, cos(x1, x2) - margin) where y = -1; x1, x2: [N, D] and y: [N], or [D] and [].
Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& y, double margin = 0,
                             LossReduction reduction = Reduction::mean);
struct TripletMarginOptions {
  double margin = 1, p = 2, eps = 1e-6;
  bool swap = false;
  LossReduction reduction = Reduction::mean;
  static const OptionList<TripletMarginOptions>& list();
};
// Returns max(0, |anchor - positive + eps|_p - |anchor - negative + eps|_p + margin); all [N, D] or [D], broadcast
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options = {});
struct MultiMarginOptions {
  int64_t p = 1;
  double margin = 1;
  Tensor weight = {};  // [C] or undefined
  LossReduction reduction = Reduction::mean;
  static const OptionList<MultiMarginOptions>& list();
};
// Returns the sum over j != y of max(0, margin - x[y] + x[j])^p weight[y] / C; x: [N, C] or [C], target: i64 [N] or [].
Tensor multi_margin_loss(const Tensor& x, const Tensor& target, const MultiMarginOptions& options = {});
// Returns the sum over targets t and classes j that are not targets of max(0, 1 - x[t] + x[j]) / C. target: i64 of x's shape; the
// targets are those before the first -1.
Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target, LossReduction reduction = Reduction::mean);
struct MultiLabelSoftMarginLossOptions {
  Tensor weight = {};  // [C]
  LossReduction reduction = Reduction::mean;
  static const OptionList<MultiLabelSoftMarginLossOptions>& list();
};
// Returns -mean over classes of weight (y ln sigmoid(x) + (1 - y) ln sigmoid(-x)); weight: [C] or undefined
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target, const Tensor& weight = Tensor(),
                                   LossReduction reduction = Reduction::mean);

}  // namespace halfstep
