// SPDX-License-Identifier: Apache-2.0
#include "layers/losses.h"

namespace halfstep {
namespace {

// A weight of the options, where the output is: in its dtype, and float32 for a 16-bit one.
Tensor beside(const Tensor& weight, const Tensor& output) {
  if (!weight.defined()) return weight;
  const DType dtype = output.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return weight.to(output.device()).to(dtype);
}

}  // namespace

MSELoss::MSELoss(const LossOptions& o)
    : FunctionLoss("MSELoss()", [=](const Tensor& x, const Tensor& y) { return mse_loss(x, y, o.reduction); }) {}

L1Loss::L1Loss(const LossOptions& o)
    : FunctionLoss("L1Loss()", [=](const Tensor& x, const Tensor& y) { return l1_loss(x, y, o.reduction); }) {}

SmoothL1Loss::SmoothL1Loss(const SmoothL1LossOptions& o)
    : FunctionLoss("SmoothL1Loss()", [=](const Tensor& x, const Tensor& y) { return smooth_l1_loss(x, y, o.reduction, o.beta); }) {
  check<ValueError>(o.beta >= 0, "SmoothL1Loss", "beta must be >= 0, got ", o.beta);
}

HuberLoss::HuberLoss(const HuberLossOptions& o)
    : FunctionLoss("HuberLoss()", [=](const Tensor& x, const Tensor& y) { return huber_loss(x, y, o.reduction, o.delta); }) {
  check<ValueError>(o.delta > 0, "HuberLoss", "delta must be > 0, got ", o.delta);
}

PoissonNLLLoss::PoissonNLLLoss(const PoissonNllOptions& options)
    : FunctionLoss("PoissonNLLLoss()", [=](const Tensor& x, const Tensor& y) { return poisson_nll_loss(x, y, options); }) {}

KLDivLoss::KLDivLoss(const KLDivLossOptions& o)
    : FunctionLoss("KLDivLoss()", [=](const Tensor& x, const Tensor& y) { return kl_div(x, y, o.reduction, o.log_target); }) {}

BCELoss::BCELoss(const BCEOptions& o)
    : FunctionLoss("BCELoss()",
                   [=](const Tensor& x, const Tensor& y) { return binary_cross_entropy(x, y, beside(o.weight, x), o.reduction); }) {
}

BCEWithLogitsLoss::BCEWithLogitsLoss(const BceWithLogitsOptions& o)
    : FunctionLoss("BCEWithLogitsLoss()", [=](const Tensor& x, const Tensor& y) {
        return binary_cross_entropy_with_logits(x, y, {beside(o.weight, x), beside(o.pos_weight, x), o.reduction});
      }) {}

SoftMarginLoss::SoftMarginLoss(const LossOptions& o)
    : FunctionLoss("SoftMarginLoss()", [=](const Tensor& x, const Tensor& y) { return soft_margin_loss(x, y, o.reduction); }) {}

HingeEmbeddingLoss::HingeEmbeddingLoss(const HingeEmbeddingLossOptions& o)
    : FunctionLoss("HingeEmbeddingLoss()",
                   [=](const Tensor& x, const Tensor& y) { return hinge_embedding_loss(x, y, o.margin, o.reduction); }) {}

CrossEntropyLoss::CrossEntropyLoss(const CrossEntropyOptions& o)
    : FunctionLoss("CrossEntropyLoss()", [=](const Tensor& x, const Tensor& y) {
        return cross_entropy(x, y, {beside(o.weight, x), o.ignore_index, o.reduction, o.label_smoothing});
      }) {
  check<ValueError>(o.label_smoothing >= 0 && o.label_smoothing <= 1, "CrossEntropyLoss", "label_smoothing must be in [0, 1], got ",
                    o.label_smoothing);
}

NLLLoss::NLLLoss(const NllLossOptions& o)
    : FunctionLoss("NLLLoss()", [=](const Tensor& x, const Tensor& y) {
        return nll_loss(x, y, {beside(o.weight, x), o.ignore_index, o.reduction});
      }) {}

MultiMarginLoss::MultiMarginLoss(const MultiMarginOptions& o)
    : FunctionLoss("MultiMarginLoss()", [=](const Tensor& x, const Tensor& y) {
        return multi_margin_loss(x, y, {o.p, o.margin, beside(o.weight, x), o.reduction});
      }) {
  check<ValueError>(o.p == 1 || o.p == 2, "MultiMarginLoss", "p must be 1 or 2, got ", o.p);
}

MultiLabelMarginLoss::MultiLabelMarginLoss(const LossOptions& o)
    : FunctionLoss("MultiLabelMarginLoss()",
                   [=](const Tensor& x, const Tensor& y) { return multilabel_margin_loss(x, y.to(DType::i64), o.reduction); }) {}

MultiLabelSoftMarginLoss::MultiLabelSoftMarginLoss(const MultiLabelSoftMarginLossOptions& o)
    : FunctionLoss("MultiLabelSoftMarginLoss()", [=](const Tensor& x, const Tensor& y) {
        return multilabel_soft_margin_loss(x, y, beside(o.weight, x), o.reduction);
      }) {}

Tensor TripletMarginWithDistanceLoss::operator()(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const {
  check<ValueError>(margin > 0, "TripletMarginWithDistanceLoss", "margin must be > 0, got ", margin);
  const auto measure = distance ? distance : PairwiseDistance();  // PyTorch's None
  Tensor apart = measure(anchor, negative);
  if (swap) apart = minimum(apart, measure(positive, negative));
  const Tensor loss = relu(measure(anchor, positive) - apart + margin);
  return reduction == Reduction::none ? loss : reduction == Reduction::sum ? sum(loss) : mean(loss);
}

}  // namespace halfstep
