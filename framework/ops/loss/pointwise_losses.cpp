// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/loss/pointwise_losses.h"

#include <cmath>
#include <numbers>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/elementwise/pointwise.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr std::string_view kBce = "binary_cross_entropy";
constexpr std::string_view kBceLogits = "binary_cross_entropy_with_logits";

void check_defined(std::string_view op, const Tensors& in) {
  for (const Tensor& t : in) check<ValueError>(t.defined(), op, "an input is undefined");
  check<DTypeError>(in[0].is_floating_point(), op, "the input must be floating, got ", in[0].dtype());
}
void check_target(std::string_view op, const Tensor& x, const Tensor& target) {
  check_defined(op, {x, target});
  check_one_shape(op, x.shape(), target.shape());
  check<DTypeError>(target.is_floating_point(), op, "the target must be floating, got ", target.dtype());
}

// Applies the op's policy, and reduces the losses of the elements, which elementwise(inputs, dtype) computes in float32 or float64.
template <class Elementwise>
Tensor loss_of(OpInfo info, Tensors in, Reduction reduction, Elementwise elementwise) {
  check_same_device(info.name, in);
  info.reads_half = true;
  const bool region = apply_policy(info, in);
  const autocast::Off off;
  const DType own = result_type(in), wide = own == DType::f64 ? own : DType::f32;
  return reduce_loss(elementwise(in, wide), reduction).to(region ? wide : own);
}
Tensor loss_of(Pointwise row, const Tensor& x, const Tensor& target, Reduction reduction, double p = 0) {
  return loss_of(info_of(row), {x, target}, reduction,
                 [&](const Tensors& in, DType wide) { return call_pointwise(row, in, p, 0, wide); });
}
Tensor weighted(const Tensor& loss, const Tensor& weight) { return weight.defined() ? loss * weight : loss; }

// Throws ValueError for values outside [0, 1], on the CPU only: on a GPU the host would wait for them.
void check_probabilities(std::string_view what, const Tensor& t) {
  if (!t.device().is_cpu() || t.numel() == 0) return;
  const NoGrad quiet;
  const double lo = amin(t).item<double>(), hi = amax(t).item<double>();
  check<ValueError>(lo >= 0 && hi <= 1, kBce, "all ", what, " must lie in [0, 1], got ", lo, " to ", hi);
}

// Returns the row's info with the advice for a region, in which the op is banned.
OpInfo bce_info() {
  OpInfo info = info_of(Pointwise::binary_cross_entropy);
  info.advice =
      "use binary_cross_entropy_with_logits, which is safe, instead of sigmoid and binary_cross_entropy; or compute this loss in a "
      "region that is disabled";
  return info;
}

// Returns var, or a view of it, in a shape that broadcasts to x's.
Tensor variance_like(const Tensor& x, const Tensor& var) {
  if (var.shape() == x.shape()) return var;
  bool fits = var.dim() == x.dim(), shorter = var.dim() + 1 == x.dim();
  int differing = 0;
  for (int d = 0; d < var.dim(); ++d) {
    if (shorter) shorter = var.size(d) == x.size(d);
    if (!fits || var.size(d) == x.size(d)) continue;
    ++differing;
    fits = var.size(d) == 1;
  }
  check<ShapeError>(shorter || (fits && differing <= 1), "gaussian_nll_loss", "var must have the input's shape ", x.shape(),
                    ", or it with one size of 1 or without the last, got ", var.shape());
  return shorter ? var.unsqueeze(-1) : var;
}

}  // namespace

Tensor l1_loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  check_target("l1_loss", x, target);
  return loss_of(Pointwise::l1_loss, x, target, reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, LossReduction reduction, double beta) {
  check_target("smooth_l1_loss", x, target);
  check_options("smooth_l1_loss", SmoothL1LossOptions{reduction, beta});
  return loss_of(info_of(Pointwise::smooth_l1_loss), {x, target}, reduction, [&](const Tensors& in, DType wide) {
    return call_pointwise(beta == 0 ? Pointwise::l1_loss : Pointwise::smooth_l1_loss, in, beta, 0, wide);
  });
}

Tensor huber_loss(const Tensor& x, const Tensor& target, LossReduction reduction, double delta) {
  check_target("huber_loss", x, target);
  check_options("huber_loss", HuberLossOptions{reduction, delta});
  return loss_of(Pointwise::huber_loss, x, target, reduction, delta);
}

KlReduction parse_kl_reduction(std::string_view text) {
  if (text == "batchmean") return KlReduction::batchmean;
  const Reduction plain = parse_reduction(text, "kl_div");
  return plain == Reduction::none ? KlReduction::none : plain == Reduction::sum ? KlReduction::sum : KlReduction::mean;
}

OptionValue OptionMember<KlLossReduction>::get(const KlLossReduction& member) {
  constexpr const char* kNames[] = {"none", "mean", "sum", "batchmean"};
  return std::string(kNames[size_t(KlReduction(member))]);
}
bool OptionMember<KlLossReduction>::put(KlLossReduction& member, const OptionValue& value) {
  const auto* const text = std::get_if<std::string>(&value);
  if (text) member = *text;
  return text;
}

HALFSTEP_OPTIONS(LossOptions, reduction_of<O>())
HALFSTEP_OPTIONS(SmoothL1LossOptions, reduction_of<O>(), option("beta", &O::beta, "where it becomes linear").at_least(0))
HALFSTEP_OPTIONS(HuberLossOptions, reduction_of<O>(), option("delta", &O::delta, "where it becomes linear").above(0))
HALFSTEP_OPTIONS(PoissonNllOptions, option("log_input", &O::log_input, "false: output - target ln(output + eps)"),
                 option("full", &O::full, "add ln(target!), nearly"), option("eps", &O::eps, "keeps logarithms finite").above(0),
                 reduction_of<O>())
HALFSTEP_OPTIONS(
    KLDivLossOptions,
    option("reduction", &O::reduction, "\"batchmean\": the sum over the batch's size").one_of({"mean", "batchmean", "sum", "none"}),
    option("log_target", &O::log_target, "the target is in log space, too"))
HALFSTEP_OPTIONS(BCEOptions, weight_of<O>("one for each output; left out: all the same"), reduction_of<O>())
HALFSTEP_OPTIONS(BceWithLogitsOptions, weight_of<O>("one for each output; left out: all the same"), reduction_of<O>(),
                 weight_of<O>("of the part of positive targets, one for each output", &O::pos_weight, "pos_weight"))
HALFSTEP_OPTIONS(HingeEmbeddingLossOptions, option("margin", &O::margin, "how far apart"), reduction_of<O>())
HALFSTEP_OPTIONS(GaussianNllOptions, option("full", &O::full, "add ln(2 pi)/2"), option("eps", &O::eps, "least variance").above(0),
                 reduction_of<O>())

Tensor kl_div(const Tensor& x, const Tensor& target, KlLossReduction reduction, bool log_target) {
  check_target("kl_div", x, target);
  const Pointwise row = log_target ? Pointwise::kl_div_log : Pointwise::kl_div;
  const bool by_batch = reduction == KlReduction::batchmean && x.dim() > 0;
  return loss_of(info_of(row), {x, target},
                 reduction == KlReduction::none   ? Reduction::none
                 : reduction == KlReduction::mean ? Reduction::mean
                                                  : Reduction::sum,
                 [&](const Tensors& in, DType wide) {
                   const Tensor each = call_pointwise(row, in, 0, 0, wide);
                   return by_batch ? sum(each) / double(x.size(0)) : each;
                 });
}

Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight, LossReduction reduction) {
  check_target(kBce, x, target);
  if (weight.defined()) broadcast(x.shape(), weight.shape(), kBce);
  return loss_of(bce_info(), {x, target, weight}, reduction, [&](const Tensors& in, DType wide) {
    check_probabilities("inputs", in[0]);
    check_probabilities("targets", in[1]);
    return weighted(call_pointwise(Pointwise::binary_cross_entropy, {in[0], in[1]}, 0, 0, wide), in[2]);
  });
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const BceWithLogitsOptions& options) {
  check_target(kBceLogits, x, target);
  for (const Tensor& w : {options.weight, options.pos_weight})
    if (w.defined()) broadcast(x.shape(), w.shape(), kBceLogits);
  return loss_of(info_of(Pointwise::binary_cross_entropy_with_logits), {x, target, options.weight, options.pos_weight},
                 options.reduction, [](const Tensors& in, DType wide) {
                   const Tensor each =
                       in[3].defined() ? call_pointwise(Pointwise::weighted_bce, {in[0], in[1], in[3]}, 0, 0, wide)
                                       : call_pointwise(Pointwise::binary_cross_entropy_with_logits, {in[0], in[1]}, 0, 0, wide);
                   return weighted(each, in[2]);
                 });
}

Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, const PoissonNllOptions& options) {
  check_defined("poisson_nll_loss", {x, target});
  check_one_shape("poisson_nll_loss", x.shape(), target.shape());
  return loss_of(info_of(Pointwise::poisson_nll_loss), {x, target}, options.reduction, [&](const Tensors& in, DType wide) {
    const Tensor each =
        call_pointwise(options.log_input ? Pointwise::poisson_nll_loss : Pointwise::poisson_rate, in, options.eps, 0, wide);
    return options.full ? each + call_pointwise(Pointwise::stirling, {in[1].to(wide)}) : each;
  });
}

Tensor soft_margin_loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  check_defined("soft_margin_loss", {x, target});
  check_one_shape("soft_margin_loss", x.shape(), target.shape());
  return loss_of(Pointwise::soft_margin_loss, x, target, reduction);
}

Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, double margin, LossReduction reduction) {
  check_defined("hinge_embedding_loss", {x, target});
  check_one_shape("hinge_embedding_loss", x.shape(), target.shape());
  return loss_of(Pointwise::hinge_embedding_loss, x, target, reduction, margin);
}

Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& var, const GaussianNllOptions& options) {
  check_target("gaussian_nll_loss", x, target);
  check_defined("gaussian_nll_loss", {var});
  check_options("gaussian_nll_loss", options);
  const Tensor variance = variance_like(x, var);
  if (var.device().is_cpu() && var.numel() > 0) {
    const NoGrad quiet;
    check<ValueError>(!any(lt(var, 0.0)).item<bool>(), "gaussian_nll_loss", "var must not be negative");
  }
  return loss_of(info_of(Pointwise::gaussian_nll_loss), {x, target, variance}, options.reduction,
                 [&](const Tensors& in, DType wide) {
                   const Tensor each = call_pointwise(Pointwise::gaussian_nll_loss, in, options.eps, 0, wide);
                   return options.full ? each + 0.5 * std::log(2 * std::numbers::pi) : each;
                 });
}

void add_pointwise_losses(OpList& list) {
  list.add(info_of(Pointwise::l1_loss), [](Args& a) { return l1_loss(a.tensor(0), a.tensor(1), a.reduction()); });
  list.add(info_of(Pointwise::smooth_l1_loss), [](Args& a) {
    return smooth_l1_loss(a.tensor(0), a.tensor(1), a.reduction(), a.number("beta", SmoothL1LossOptions{}.beta));
  });
  list.add(info_of(Pointwise::huber_loss), [](Args& a) {
    return huber_loss(a.tensor(0), a.tensor(1), a.reduction(), a.number("delta", HuberLossOptions{}.delta));
  });
  list.add(info_of(Pointwise::kl_div), [](Args& a) {
    const KLDivLossOptions options = a.options<KLDivLossOptions>();
    return kl_div(a.tensor(0), a.tensor(1), options.reduction, options.log_target);
  });
  list.add(bce_info(), [](Args& a) { return binary_cross_entropy(a.tensor(0), a.tensor(1), a.tensor_or_none(2), a.reduction()); });
  list.add(info_of(Pointwise::binary_cross_entropy_with_logits), [](Args& a) {
    return binary_cross_entropy_with_logits(
        a.tensor(0), a.tensor(1), {.weight = a.tensor_or_none(2), .pos_weight = a.tensor_or_none(3), .reduction = a.reduction()});
  });
  list.add(info_of(Pointwise::poisson_nll_loss),
           [](Args& a) { return poisson_nll_loss(a.tensor(0), a.tensor(1), a.options<PoissonNllOptions>()); });
  list.add(info_of(Pointwise::soft_margin_loss), [](Args& a) { return soft_margin_loss(a.tensor(0), a.tensor(1), a.reduction()); });
  list.add(info_of(Pointwise::hinge_embedding_loss), [](Args& a) {
    return hinge_embedding_loss(a.tensor(0), a.tensor(1), a.number("margin", HingeEmbeddingLossOptions{}.margin), a.reduction());
  });
  list.add(info_of(Pointwise::gaussian_nll_loss),
           [](Args& a) { return gaussian_nll_loss(a.tensor(0), a.tensor(1), a.tensor(2), a.options<GaussianNllOptions>()); });
}

}  // namespace halfstep
