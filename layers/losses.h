// SPDX-License-Identifier: Apache-2.0
// Losses: the ops of the same names with their options, framework/ops/loss and cross_entropy, nll_loss and mse_loss of
// framework/ops/ops.h. Arguments, names and defaults are PyTorch's; weights of classes follow the output to its device and dtype.
#pragma once

#include <concepts>
#include <functional>
#include <string>

#include "framework/ops/ops.h"

namespace halfstep {

// What the loss of a batch is a mean over: rows, elements, or the sum of the weights of the targets that count. The loss of several
// batches is the mean of theirs, each weighted by its denominator, so it does not depend on where batches end.
class Denominator {
 public:
  Denominator(double value) : elements_(value), value_(value) {}
  // The values of the targets decide it: `value`, 0-dim, on their device. `elements`: how many targets there are, by their shape;
  // `each`: what one that counts usually adds.
  Denominator(int64_t elements, double each, const Tensor& value);
  static Denominator of_sum();  // the loss is no mean but a sum, to which the next one is added

  bool is_sum() const { return is_sum_; }
  double elements() const { return elements_; }
  double each() const { return each_; }
  double value() const;         // waits for the device
  const Tensor& on_device() const { return on_device_; }  // f64, where the host does not know it; else undefined
  Denominator on_host() const;  // waits for the device
  Denominator clone() const;    // in memory of its own
  bool is_zero() const { return !on_device_.defined() && value_ == 0; }  // known to be: no target counts

 private:
  double elements_, each_ = 1, value_;
  Tensor on_device_;
  bool is_sum_ = false;
};

// Called with a model's output and the target.
class Loss {
 public:
  virtual ~Loss() = default;
  virtual Tensor operator()(const Tensor& output, const Tensor& target) const = 0;
  // The same, for a loss that can use the tensor that backward will begin with (mse_loss). TrainStep calls this one.
  virtual Tensor with_seed(const Tensor& output, const Tensor& target, const Tensor& /*seed*/) const {
    return (*this)(output, target);
  }
  // What its result is a mean over. Here: the rows, target.size(0). A loss of your own that leaves out padding, or that weighs
  // samples, returns the number or the weight of those that count; else accumulation, ranks and evaluations weigh batches wrongly.
  virtual Denominator denominator(const Tensor& target) const;
  virtual bool is_recordable() const { return false; }  // as Module::is_recordable
  virtual std::string describe() const = 0;
};

// A loss that is a function of the two and decides nothing on the host.
class FunctionLoss : public Loss {
 public:
  using Function = std::function<Tensor(const Tensor& output, const Tensor& target)>;
  using Over = std::function<Denominator(const Tensor& target)>;
  // over: what it is a mean over; left out: the rows.
  FunctionLoss(std::string description, Function function, Over over = nullptr)
      : description_(std::move(description)), function_(std::move(function)), over_(std::move(over)) {}
  Tensor operator()(const Tensor& output, const Tensor& target) const override { return function_(output, target); }
  Denominator denominator(const Tensor& target) const override { return over_ ? over_(target) : Loss::denominator(target); }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return description_; }

 private:
  std::string description_;
  Function function_;
  Over over_;
};

struct LossOptions {
  LossReduction reduction = Reduction::mean;
};

// ---- a number against a number
class MSELoss : public FunctionLoss {
 public:
  explicit MSELoss(const LossOptions& options = {});
  explicit MSELoss(std::same_as<Reduction> auto reduction) : MSELoss(LossOptions{reduction}) {}
  Tensor with_seed(const Tensor& output, const Tensor& target, const Tensor& seed) const override {
    return mse_loss(output, target, reduction_, seed);
  }

 private:
  LossReduction reduction_;
};
class L1Loss : public FunctionLoss {
 public:
  explicit L1Loss(const LossOptions& options = {});
  explicit L1Loss(std::same_as<Reduction> auto reduction) : L1Loss(LossOptions{reduction}) {}
};
struct SmoothL1LossOptions {
  LossReduction reduction = Reduction::mean;
  double beta = 1;
};
class SmoothL1Loss : public FunctionLoss {
 public:
  explicit SmoothL1Loss(const SmoothL1LossOptions& options = {});
  explicit SmoothL1Loss(std::same_as<Reduction> auto reduction, double beta = 1)
      : SmoothL1Loss(SmoothL1LossOptions{reduction, beta}) {}
};
struct HuberLossOptions {
  LossReduction reduction = Reduction::mean;
  double delta = 1;
};
class HuberLoss : public FunctionLoss {
 public:
  explicit HuberLoss(const HuberLossOptions& options = {});
  explicit HuberLoss(std::same_as<Reduction> auto reduction, double delta = 1) : HuberLoss(HuberLossOptions{reduction, delta}) {}
};
class PoissonNLLLoss : public FunctionLoss {
 public:
  explicit PoissonNLLLoss(const PoissonNllOptions& options = {});
};
struct KLDivLossOptions {
  KlLossReduction reduction = KlReduction::mean;
  bool log_target = false;
};
class KLDivLoss : public FunctionLoss {  // log-probabilities against probabilities, or against their logarithms
 public:
  explicit KLDivLoss(const KLDivLossOptions& options = {});
  explicit KLDivLoss(std::same_as<KlReduction> auto reduction, bool log_target = false)
      : KLDivLoss(KLDivLossOptions{reduction, log_target}) {}
};

// ---- a probability or its logit against a target in [0, 1]
struct BCEOptions {
  Tensor weight = {};  // broadcasts
  LossReduction reduction = Reduction::mean;
};
class BCELoss : public FunctionLoss {
 public:
  explicit BCELoss(const BCEOptions& options = {});
};  // not in an autocast region
class BCEWithLogitsLoss : public FunctionLoss {
 public:
  explicit BCEWithLogitsLoss(const BceWithLogitsOptions& options = {});
};

// ---- a score against 1 or -1
class SoftMarginLoss : public FunctionLoss {
 public:
  explicit SoftMarginLoss(const LossOptions& options = {});
  explicit SoftMarginLoss(std::same_as<Reduction> auto reduction) : SoftMarginLoss(LossOptions{reduction}) {}
};
struct HingeEmbeddingLossOptions {
  double margin = 1;
  LossReduction reduction = Reduction::mean;
};
class HingeEmbeddingLoss : public FunctionLoss {
 public:
  explicit HingeEmbeddingLoss(const HingeEmbeddingLossOptions& options = {});
  explicit HingeEmbeddingLoss(PlainNumber auto margin, Reduction reduction = Reduction::mean)
      : HingeEmbeddingLoss(HingeEmbeddingLossOptions{double(margin), reduction}) {}
};

// ---- a score for each class against a class, or several
class CrossEntropyLoss : public FunctionLoss {
 public:
  explicit CrossEntropyLoss(const CrossEntropyOptions& options = {});
};
class NLLLoss : public FunctionLoss {
 public:
  explicit NLLLoss(const NllLossOptions& options = {});
};
class MultiMarginLoss : public FunctionLoss {
 public:
  explicit MultiMarginLoss(const MultiMarginOptions& options = {});
};
// Targets: class numbers of the output's shape, those before the first -1; of a floating dtype they are converted.
class MultiLabelMarginLoss : public FunctionLoss {
 public:
  explicit MultiLabelMarginLoss(const LossOptions& options = {});
  explicit MultiLabelMarginLoss(std::same_as<Reduction> auto reduction) : MultiLabelMarginLoss(LossOptions{reduction}) {}
};
struct MultiLabelSoftMarginLossOptions {
  Tensor weight = {};  // [C]
  LossReduction reduction = Reduction::mean;
};
class MultiLabelSoftMarginLoss : public FunctionLoss {
 public:
  explicit MultiLabelSoftMarginLoss(const MultiLabelSoftMarginLossOptions& options = {});
  explicit MultiLabelSoftMarginLoss(const std::derived_from<Tensor> auto& weight, Reduction reduction = Reduction::mean)
      : MultiLabelSoftMarginLoss(MultiLabelSoftMarginLossOptions{weight, reduction}) {}
};

// ---- distances; for C++ alone
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

// ---- losses of more than an output and a target; for C++ alone
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
  explicit TripletMarginLoss(const TripletMarginOptions& options = {}) : options(options) {}
  Tensor operator()(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const {
    return triplet_margin_loss(anchor, positive, negative, options);
  }
};
struct TripletMarginWithDistanceLoss {
  std::function<Tensor(const Tensor&, const Tensor&)> distance = PairwiseDistance();
  double margin = 1;
  bool swap = false;  // as of TripletMarginOptions
  LossReduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const;
};
struct GaussianNLLLoss {
  GaussianNllOptions options;
  explicit GaussianNLLLoss(const GaussianNllOptions& options = {}) : options(options) {}
  Tensor operator()(const Tensor& output, const Tensor& target, const Tensor& var) const {
    return gaussian_nll_loss(output, target, var, options);
  }
};
struct CTCLoss {
  CtcOptions options;
  explicit CTCLoss(const CtcOptions& options = {}) : options(options) {}
  Tensor operator()(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                    const Tensor& target_lengths) const {
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, options);
  }
};

}  // namespace halfstep
