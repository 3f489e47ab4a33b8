// SPDX-License-Identifier: Apache-2.0
// Losses. They apply the ops of framework/ops/loss, whose formulas are there, with options. Arguments, names and defaults are
// PyTorch's; class weights follow the output to its device and dtype.
#pragma once

#include <functional>
#include <string>
#include <typeinfo>

#include "framework/ops/ops.h"
#include "layers/module/layer.h"

namespace halfstep {

// The denominator of a batch's mean loss: its rows, its elements, or the sum of the weights of its targets. The loss over several
// batches is their mean weighted by their denominators, so it does not depend on the batch size.
class Denominator {
 public:
  Denominator(double value) : elements_(value), value_(value) {}
  // Takes a `value` (0-dim, on the targets' device) that depends on the targets' values. `elements`: the number of targets by
  // shape; `each`: the usual contribution of one.
  Denominator(int64_t elements, double each, const Tensor& value);
  static Denominator of_sum();  // for a loss that is a sum, not a mean

  bool is_sum() const { return is_sum_; }
  double elements() const { return elements_; }
  double each() const { return each_; }
  double value() const;         // waits for the device
  const Tensor& on_device() const { return on_device_; }  // value in f64 if only the device has it; else undefined
  Denominator on_host() const;  // waits for the device
  Denominator clone() const;    // in separate memory
  bool is_zero() const { return !on_device_.defined() && value_ == 0; }  // in the host's value: all targets are ignored

 private:
  double elements_, each_ = 1, value_;
  Tensor on_device_;
  bool is_sum_ = false;
};

// A function of a model's output and the target.
class Loss {
 public:
  virtual ~Loss() = default;
  virtual Tensor operator()(const Tensor& output, const Tensor& target) const = 0;
  // Computes the same, and passes a tensor to begin backward with, if the loss can use one (mse_loss, cross_entropy). TrainStep
  // calls this.
  virtual Tensor with_seed(const Tensor& output, const Tensor& target, const Tensor& /*seed*/) const {
    return (*this)(output, target);
  }
  // Returns the denominator of the mean; here the rows, target.size(0). A loss of your own that ignores padding or weighs samples
  // must return the number or the weight of the samples it counts; else accumulation, ranks and evaluations weigh batches wrongly.
  virtual Denominator denominator(const Tensor& target) const;
  virtual bool is_recordable() const { return false; }  // see Module::is_recordable
  virtual std::string describe() const = 0;
};

// A loss that is a function of output and target, and reads nothing on the host.
class FunctionLoss : public Loss {
 public:
  using Function = std::function<Tensor(const Tensor& output, const Tensor& target)>;
  using Seeded = std::function<Tensor(const Tensor& output, const Tensor& target, const Tensor& seed)>;  // seed: see with_seed
  using DenominatorOf = std::function<Denominator(const Tensor& target)>;
  // denominator_of: computes the denominator; null: the rows.
  FunctionLoss(std::string description, Function function, DenominatorOf denominator_of = nullptr)
      : description_(std::move(description)), function_(std::move(function)), denominator_of_(std::move(denominator_of)) {}
  FunctionLoss(std::string description, Seeded function, DenominatorOf denominator_of = nullptr)
      : FunctionLoss(
            std::move(description), [function](const Tensor& x, const Tensor& y) { return function(x, y, {}); },
            std::move(denominator_of)) {
    seed_by(typeid(FunctionLoss), std::move(function));
  }
  Tensor operator()(const Tensor& output, const Tensor& target) const override { return function_(output, target); }
  // Without the seed in a class that derives from the loss, since it may compute another loss.
  Tensor with_seed(const Tensor& output, const Tensor& target, const Tensor& seed) const override {
    return seeded_ && typeid(*this) == *seeded_type_ ? seeded_(output, target, seed) : (*this)(output, target);
  }
  Denominator denominator(const Tensor& target) const override {
    return denominator_of_ ? denominator_of_(target) : Loss::denominator(target);
  }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return description_; }

 protected:
  // Gives objects of this class, and of none that derives from it, the function for with_seed.
  void seed_by(const std::type_info& type, Seeded function) {
    seeded_ = std::move(function);
    seeded_type_ = &type;
  }

 private:
  std::string description_;
  Function function_;
  Seeded seeded_;  // or null
  const std::type_info* seeded_type_ = nullptr;
  DenominatorOf denominator_of_;
};

// Denominators by shape: the elements, the lists along the last dimension (one number for each class), or the rows.
enum class MeanOf : uint8_t { elements, lists, rows };
FunctionLoss::DenominatorOf mean_over(Reduction reduction, MeanOf part);
template <MeanOf part = MeanOf::elements>
struct MeanOver {
  template <class O>
  static FunctionLoss::DenominatorOf of(const O& o) {
    return mean_over(o.reduction, part);
  }
};
// Sums the weights of the classes that are not ignored.
struct MeanOverClasses {
  static FunctionLoss::DenominatorOf of(const CrossEntropyOptions& o);
  static FunctionLoss::DenominatorOf of(const NllLossOptions& o);
};
// Counts the rows for "batchmean", else the elements.
struct MeanOverBatch {
  static FunctionLoss::DenominatorOf of(const KLDivLossOptions& o);
};

// A loss that is a function of output, target and options. The list of options supplies the checks.
template <ClassName type, HasOptionList O, Tensor (*function)(const Tensor&, const Tensor&, const O&), class Mean = MeanOver<>>
class OptionLoss : public FunctionLoss {
 public:
  using Options = O;
  static constexpr const char* kName = type.text;
  explicit OptionLoss(const O& options = {})
      : FunctionLoss(
            std::string(kName) + "()", [options](const Tensor& x, const Tensor& y) { return function(x, y, options); },
            Mean::of(options)) {
    check_options(kName, options);
  }
};

// Functions of the losses below. Weights follow the output to its device and dtype.
namespace loss_functions {
Tensor mse(const Tensor& x, const Tensor& y, const LossOptions& o);
Tensor l1(const Tensor& x, const Tensor& y, const LossOptions& o);
Tensor smooth_l1(const Tensor& x, const Tensor& y, const SmoothL1LossOptions& o);
Tensor huber(const Tensor& x, const Tensor& y, const HuberLossOptions& o);
Tensor kl_div(const Tensor& x, const Tensor& y, const KLDivLossOptions& o);
Tensor bce(const Tensor& x, const Tensor& y, const BCEOptions& o);
Tensor bce_with_logits(const Tensor& x, const Tensor& y, const BceWithLogitsOptions& o);
Tensor soft_margin(const Tensor& x, const Tensor& y, const LossOptions& o);
Tensor hinge_embedding(const Tensor& x, const Tensor& y, const HingeEmbeddingLossOptions& o);
Tensor cross_entropy(const Tensor& x, const Tensor& y, const CrossEntropyOptions& o);
Tensor seeded_cross_entropy(const Tensor& x, const Tensor& y, const CrossEntropyOptions& o, const Tensor& seed);
Tensor nll(const Tensor& x, const Tensor& y, const NllLossOptions& o);
Tensor multi_margin(const Tensor& x, const Tensor& y, const MultiMarginOptions& o);
Tensor multilabel_margin(const Tensor& x, const Tensor& y, const LossOptions& o);
Tensor multilabel_soft_margin(const Tensor& x, const Tensor& y, const MultiLabelSoftMarginLossOptions& o);
}  // namespace loss_functions

// ---- regression
class MSELoss : public OptionLoss<"MSELoss", LossOptions, loss_functions::mse> {
 public:
  explicit MSELoss(const LossOptions& options = {}) : OptionLoss(options) {
    seed_by(typeid(MSELoss), [reduction = options.reduction](const Tensor& x, const Tensor& y, const Tensor& seed) {
      return mse_loss(x, y, reduction, seed);
    });
  }
};
using L1Loss = OptionLoss<"L1Loss", LossOptions, loss_functions::l1>;
using SmoothL1Loss = OptionLoss<"SmoothL1Loss", SmoothL1LossOptions, loss_functions::smooth_l1>;
using HuberLoss = OptionLoss<"HuberLoss", HuberLossOptions, loss_functions::huber>;
using PoissonNLLLoss = OptionLoss<"PoissonNLLLoss", PoissonNllOptions, poisson_nll_loss>;
// Compares log-probabilities with probabilities, or with log-probabilities.
using KLDivLoss = OptionLoss<"KLDivLoss", KLDivLossOptions, loss_functions::kl_div, MeanOverBatch>;

// ---- binary classification: a probability or its logit against a target in [0, 1]
using BCELoss = OptionLoss<"BCELoss", BCEOptions, loss_functions::bce>;  // throws in an autocast region
using BCEWithLogitsLoss = OptionLoss<"BCEWithLogitsLoss", BceWithLogitsOptions, loss_functions::bce_with_logits>;

// ---- a score against a target of 1 or -1
using SoftMarginLoss = OptionLoss<"SoftMarginLoss", LossOptions, loss_functions::soft_margin>;
using HingeEmbeddingLoss = OptionLoss<"HingeEmbeddingLoss", HingeEmbeddingLossOptions, loss_functions::hinge_embedding>;

// ---- classification: a score for each class against one class or several
class CrossEntropyLoss
    : public OptionLoss<"CrossEntropyLoss", CrossEntropyOptions, loss_functions::cross_entropy, MeanOverClasses> {
 public:
  explicit CrossEntropyLoss(const CrossEntropyOptions& options = {}) : OptionLoss(options) {
    seed_by(typeid(CrossEntropyLoss), [options](const Tensor& x, const Tensor& y, const Tensor& seed) {
      return loss_functions::seeded_cross_entropy(x, y, options, seed);
    });
  }
};
using NLLLoss = OptionLoss<"NLLLoss", NllLossOptions, loss_functions::nll, MeanOverClasses>;
using MultiMarginLoss = OptionLoss<"MultiMarginLoss", MultiMarginOptions, loss_functions::multi_margin>;
// Targets: class numbers of the output's shape, of which those before the first -1 count; floating ones are converted.
using MultiLabelMarginLoss =
    OptionLoss<"MultiLabelMarginLoss", LossOptions, loss_functions::multilabel_margin, MeanOver<MeanOf::lists>>;
using MultiLabelSoftMarginLoss = OptionLoss<"MultiLabelSoftMarginLoss", MultiLabelSoftMarginLossOptions,
                                            loss_functions::multilabel_soft_margin, MeanOver<MeanOf::lists>>;

// ---- distances; not in configs
struct PairwiseDistance {
  double p = 2, eps = 1e-6;
  bool keepdim = false;
  Tensor operator()(const Tensor& x1, const Tensor& x2) const { return pairwise_distance(x1, x2, p, eps, keepdim); }
};
struct CosineSimilarity {
  int64_t dim = 1;
  double eps = 1e-8;
  Tensor operator()(const Tensor& x1, const Tensor& x2) const { return cosine_similarity(x1, x2, dim, eps); }
};

// ---- losses with more inputs than output and target; not in configs
struct CosineEmbeddingLoss {
  double margin = 0;
  LossReduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& x1, const Tensor& x2, const Tensor& y) const {
    return cosine_embedding_loss(x1, x2, y, margin, reduction);
  }
};
struct MarginRankingLoss {
  double margin = 0;
  LossReduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& x1, const Tensor& x2, const Tensor& y) const {
    return margin_ranking_loss(x1, x2, y, margin, reduction);
  }
};
struct TripletMarginLoss {
  TripletMarginOptions options;
  explicit TripletMarginLoss(const TripletMarginOptions& options = {}) : options(options) {
    check_options("TripletMarginLoss", options);
  }
  Tensor operator()(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const {
    return triplet_margin_loss(anchor, positive, negative, options);
  }
};
struct TripletMarginWithDistanceLoss {
  std::function<Tensor(const Tensor&, const Tensor&)> distance = PairwiseDistance();
  double margin = 1;
  bool swap = false;  // see TripletMarginOptions
  LossReduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const;
};
struct GaussianNLLLoss {
  GaussianNllOptions options;
  explicit GaussianNLLLoss(const GaussianNllOptions& options = {}) : options(options) { check_options("GaussianNLLLoss", options); }
  Tensor operator()(const Tensor& output, const Tensor& target, const Tensor& var) const {
    return gaussian_nll_loss(output, target, var, options);
  }
};
struct CTCLoss {
  CtcOptions options;
  explicit CTCLoss(const CtcOptions& options = {}) : options(options) { check_options("CTCLoss", options); }
  Tensor operator()(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                    const Tensor& target_lengths) const {
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, options);
  }
};

}  // namespace halfstep
