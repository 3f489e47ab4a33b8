// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/losses.h"

#include <algorithm>
#include <cmath>

#include "framework/autograd/grad_mode.h"

namespace halfstep {
namespace {

// Returns a weight of the options on the output's device and in its dtype, or in float32 for an output of 16 bits.
Tensor matching_weight(const Tensor& weight, const Tensor& output) {
  if (!weight.defined()) return weight;
  const DType dtype = output.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return weight.to(output.device()).to(dtype);
}

int64_t row_count(const Tensor& target) { return target.dim() > 0 ? target.size(0) : 1; }

// Returns the geometric mean of the positive weights.
double geometric_mean(const std::vector<double>& weights) {
  double logs = 0;
  int64_t n = 0;
  for (const double w : weights)
    if (w > 0) logs += std::log(w), ++n;
  return n > 0 ? std::exp(logs / double(n)) : 1;
}

// Returns the function that sums the weights of the classes that are not ignored. An invalid target, which the loss refuses,
// counts 1.
FunctionLoss::DenominatorOf over_classes(Reduction reduction, const Tensor& weight, int64_t ignored) {
  return [=](const Tensor& target) -> Denominator {
    if (reduction == Reduction::sum) return Denominator::of_sum();
    if (target.is_floating_point())  // probabilities: each position counts once, with any weights
      return double(target.numel() / std::max<int64_t>(target.dim() == 0 ? 1 : target.size(target.dim() == 1 ? 0 : 1), 1));
    const bool weighs = weight.defined() && weight.dim() == 1 && !weight.device().is_meta();
    const std::vector<double> weights = weighs ? weight.detach().to_vector<double>() : std::vector<double>();
    const double each = weighs ? geometric_mean(weights) : 1;
    if (target.dtype() != DType::i64 || target.device().is_meta()) return {target.numel(), each, Tensor()};
    const NoGrad off;
    if (target.device().is_cpu()) {
      double sum = 0;
      for (const int64_t t : target.detach().to_vector<int64_t>())
        if (t != ignored) sum += t >= 0 && t < std::ssize(weights) ? weights[size_t(t)] : 1;
      return {target.numel(), each, full({}, sum, {.dtype = DType::f64, .device = Device::cpu})};
    }
    const Tensor counts = ne(target, double(ignored));
    if (!weighs) return {target.numel(), each, sum(counts.to(DType::f64))};
    const Tensor table = weight.to(target.device()).to(DType::f64);
    const Tensor weights_of_targets = gather(table, 0, where(counts, target, 0).reshape({-1}));
    return {target.numel(), each, sum(where(counts.reshape({-1}), weights_of_targets, 0.0))};
  };
}

}  // namespace

// Counts by shape alone, so that each rank can compute the counts of the others.
FunctionLoss::DenominatorOf mean_over(Reduction reduction, MeanOf part) {
  return [=](const Tensor& target) -> Denominator {
    if (reduction == Reduction::sum) return Denominator::of_sum();
    if (part == MeanOf::rows) return double(row_count(target));
    if (part == MeanOf::lists) return double(target.dim() < 2 ? 1 : target.numel() / std::max<int64_t>(target.size(-1), 1));
    return double(target.numel());
  };
}
FunctionLoss::DenominatorOf MeanOverClasses::of(const CrossEntropyOptions& o) {
  return over_classes(o.reduction, o.weight, o.ignore_index);
}
FunctionLoss::DenominatorOf MeanOverClasses::of(const NllLossOptions& o) {
  return over_classes(o.reduction, o.weight, o.ignore_index);
}
FunctionLoss::DenominatorOf MeanOverBatch::of(const KLDivLossOptions& o) {
  return mean_over(o.reduction == KlReduction::sum ? Reduction::sum : Reduction::mean,
                   o.reduction == KlReduction::batchmean ? MeanOf::rows : MeanOf::elements);
}

Denominator::Denominator(int64_t elements, double each, const Tensor& value)
    : elements_(double(elements)), each_(each), value_(double(elements) * each) {
  if (!value.defined() || value.device().is_meta()) return;  // the usual value replaces it
  check<ShapeError>(value.numel() == 1, "Denominator", "the value must be one number, got shape ", value.shape());
  if (value.device().is_cpu())
    value_ = value.item<double>();
  else
    on_device_ = value.detach().reshape({}).to(DType::f64);
}

Denominator Denominator::of_sum() {
  Denominator out(1.0);
  out.is_sum_ = true;
  return out;
}

double Denominator::value() const { return on_device_.defined() ? on_device_.item<double>() : value_; }

Denominator Denominator::on_host() const {
  Denominator out = *this;
  out.value_ = value();
  out.on_device_ = Tensor();
  return out;
}

Denominator Denominator::clone() const {
  Denominator out = *this;
  if (on_device_.defined()) out.on_device_ = on_device_.clone();
  return out;
}

Denominator Loss::denominator(const Tensor& target) const { return double(row_count(target)); }

namespace loss_functions {

Tensor mse(const Tensor& x, const Tensor& y, const LossOptions& o) { return mse_loss(x, y, o.reduction); }
Tensor l1(const Tensor& x, const Tensor& y, const LossOptions& o) { return l1_loss(x, y, o.reduction); }
Tensor smooth_l1(const Tensor& x, const Tensor& y, const SmoothL1LossOptions& o) {
  return smooth_l1_loss(x, y, o.reduction, o.beta);
}
Tensor huber(const Tensor& x, const Tensor& y, const HuberLossOptions& o) { return huber_loss(x, y, o.reduction, o.delta); }
Tensor kl_div(const Tensor& x, const Tensor& y, const KLDivLossOptions& o) {
  return halfstep::kl_div(x, y, o.reduction, o.log_target);
}
Tensor bce(const Tensor& x, const Tensor& y, const BCEOptions& o) {
  return binary_cross_entropy(x, y, matching_weight(o.weight, x), o.reduction);
}
Tensor bce_with_logits(const Tensor& x, const Tensor& y, const BceWithLogitsOptions& o) {
  return binary_cross_entropy_with_logits(x, y, {matching_weight(o.weight, x), matching_weight(o.pos_weight, x), o.reduction});
}
Tensor soft_margin(const Tensor& x, const Tensor& y, const LossOptions& o) { return soft_margin_loss(x, y, o.reduction); }
Tensor hinge_embedding(const Tensor& x, const Tensor& y, const HingeEmbeddingLossOptions& o) {
  return hinge_embedding_loss(x, y, o.margin, o.reduction);
}
Tensor cross_entropy(const Tensor& x, const Tensor& y, const CrossEntropyOptions& o) { return seeded_cross_entropy(x, y, o, {}); }
Tensor seeded_cross_entropy(const Tensor& x, const Tensor& y, const CrossEntropyOptions& o, const Tensor& seed) {
  return halfstep::cross_entropy(x, y, {matching_weight(o.weight, x), o.ignore_index, o.reduction, o.label_smoothing}, seed);
}
Tensor nll(const Tensor& x, const Tensor& y, const NllLossOptions& o) {
  // Widens only: the op refuses weights that would lose bits.
  const bool narrows = o.weight.defined() && !(is_half(o.weight.dtype()) || o.weight.dtype() == DType::f32);
  return nll_loss(x, y, {narrows ? o.weight.to(x.device()) : matching_weight(o.weight, x), o.ignore_index, o.reduction});
}
Tensor multi_margin(const Tensor& x, const Tensor& y, const MultiMarginOptions& o) {
  return multi_margin_loss(x, y, {o.p, o.margin, matching_weight(o.weight, x), o.reduction});
}
Tensor multilabel_margin(const Tensor& x, const Tensor& y, const LossOptions& o) {
  return multilabel_margin_loss(x, y.to(DType::i64), o.reduction);
}
Tensor multilabel_soft_margin(const Tensor& x, const Tensor& y, const MultiLabelSoftMarginLossOptions& o) {
  return multilabel_soft_margin_loss(x, y, matching_weight(o.weight, x), o.reduction);
}

}  // namespace loss_functions

Tensor TripletMarginWithDistanceLoss::operator()(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const {
  constexpr const char* kName = "TripletMarginWithDistanceLoss";
  check_options(kName, TripletMarginOptions{.margin = margin});
  check<ShapeError>(anchor.dim() == positive.dim() && anchor.dim() == negative.dim(), kName,
                    "anchor, positive and negative must have one number of dimensions, got ", anchor.shape(), ", ",
                    positive.shape(), " and ", negative.shape());
  const auto measure = distance ? distance : PairwiseDistance();  // corresponds to PyTorch's None
  Tensor negative_distance = measure(anchor, negative);
  if (swap) negative_distance = minimum(negative_distance, measure(positive, negative));
  const Tensor loss = relu(measure(anchor, positive) - negative_distance + margin);
  return reduction == Reduction::none ? loss : reduction == Reduction::sum ? sum(loss) : mean(loss);
}

}  // namespace halfstep
