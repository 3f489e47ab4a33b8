// SPDX-License-Identifier: Apache-2.0
// Losses of each element against its target: both have one shape, or one is a 0-dim number (check_one_shape). reduction: the mean,
// the sum or the losses themselves (none). Autocast: f32 without a cast: kernels read 16-bit inputs and compute in float32. Both
// arguments have gradients.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "framework/backend/backend.h"
#include "framework/ops/core/loss_reduction.h"
#include "framework/ops/core/tensor_option.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct LossOptions {
  LossReduction reduction = Reduction::mean;
  static const OptionList<LossOptions>& list();
};
Tensor l1_loss(const Tensor& x, const Tensor& target, LossReduction reduction = Reduction::mean);  // |x - target|
struct SmoothL1LossOptions {
  LossReduction reduction = Reduction::mean;
  double beta = 1;
  static const OptionList<SmoothL1LossOptions>& list();
};
// Returns (x - target)^2 / (2 beta) below beta, |x - target| - beta/2 above; beta 0: l1_loss
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, LossReduction reduction = Reduction::mean,
                      double beta = SmoothL1LossOptions{}.beta);
struct HuberLossOptions {
  LossReduction reduction = Reduction::mean;
  double delta = 1;
  static const OptionList<HuberLossOptions>& list();
};
// Returns (x - target)^2 / 2 up to delta, delta (|x - target| - delta/2) beyond
Tensor huber_loss(const Tensor& x, const Tensor& target, LossReduction reduction = Reduction::mean,
                  double delta = HuberLossOptions{}.delta);

enum class KlReduction : uint8_t { none, mean, sum, batchmean };  // batchmean: the sum divided by the size of dimension 0
// Parses the name of a KlReduction: kl_div(x, target, "batchmean"). Throws ValueError for another name.
KlReduction parse_kl_reduction(std::string_view text);
class KlLossReduction {
 public:
  constexpr KlLossReduction(KlReduction value) : value_(value) {}
  template <size_t n>
  KlLossReduction(const char (&name)[n]) : value_(parse_kl_reduction(name)) {}
  KlLossReduction(const std::string& name) : value_(parse_kl_reduction(name)) {}
  constexpr operator KlReduction() const { return value_; }

 private:
  KlReduction value_;
};
template <>
struct OptionMember<KlLossReduction> {
  static constexpr OptionKind kKind = OptionKind::text;
  static OptionValue get(const KlLossReduction& member);
  static bool put(KlLossReduction& member, const OptionValue& value);
};
struct KLDivLossOptions {
  KlLossReduction reduction = KlReduction::mean;
  bool log_target = false;
  static const OptionList<KLDivLossOptions>& list();
};
// Returns target (ln target - x), x in log space; log_target: the target is in log space, too.
Tensor kl_div(const Tensor& x, const Tensor& target, KlLossReduction reduction = KlReduction::mean,
              bool log_target = KLDivLossOptions{}.log_target);

// Returns -(target ln x + (1 - target) ln(1 - x)) weight; logarithms below -100 count as -100. x: probabilities; x and target must
// have one shape and be in [0, 1], which is checked on the CPU only; weight broadcasts to them. Not allowed in an autocast region.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = Tensor(),
                            LossReduction reduction = Reduction::mean);
struct BCEOptions {
  Tensor weight = {};  // broadcasts
  LossReduction reduction = Reduction::mean;
  static const OptionList<BCEOptions>& list();
};
struct BceWithLogitsOptions {
  Tensor weight = {};      // broadcast, or undefined
  Tensor pos_weight = {};  // broadcast, or undefined
  LossReduction reduction = Reduction::mean;
  static const OptionList<BceWithLogitsOptions>& list();
};
// Computes binary_cross_entropy of sigmoid(x), in a form that neither overflows nor cancels. pos_weight multiplies the part of
// positive targets.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const BceWithLogitsOptions& options = {});

struct PoissonNllOptions {
  bool log_input = true;  // e^x - target x; false: x - target ln(x + eps)
  bool full = false;      // adds Stirling's approximation of ln(target!) for targets over 1
  double eps = 1e-8;
  LossReduction reduction = Reduction::mean;
  static const OptionList<PoissonNllOptions>& list();
};
// Returns -ln of the Poisson probability of target for the rate e^x, or x without log_input; the options have the formulas.
Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, const PoissonNllOptions& options = {});
// Returns ln(1 + e^(-target x)); target 1 or -1
Tensor soft_margin_loss(const Tensor& x, const Tensor& target, LossReduction reduction = Reduction::mean);
struct HingeEmbeddingLossOptions {
  double margin = 1;
  LossReduction reduction = Reduction::mean;
  static const OptionList<HingeEmbeddingLossOptions>& list();
};
// Returns x for target 1, max(0, margin - x) for target -1
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, double margin = HingeEmbeddingLossOptions{}.margin,
                            LossReduction reduction = Reduction::mean);
struct GaussianNllOptions {
  bool full = false;  // adds ln(2 pi)/2
  double eps = 1e-6;
  LossReduction reduction = Reduction::mean;
  static const OptionList<GaussianNllOptions>& list();
};
// Returns (ln v + (x - target)^2 / v) / 2, v = max(var, eps), where the clamp does not block var's gradient. var: x's shape, or the
// same with a last size of 1 or without it. Negative ones are an error on the CPU.
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& var, const GaussianNllOptions& options = {});

}  // namespace halfstep
