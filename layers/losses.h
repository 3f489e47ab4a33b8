// SPDX-License-Identifier: Apache-2.0
// Losses: the ops of the same names with their options, framework/ops/loss and cross_entropy, nll_loss and mse_loss of
// framework/ops/ops.h. Arguments, names and defaults are PyTorch's; weights of classes follow the output to its device and dtype.
#pragma once

#include <concepts>
#include <functional>
#include <string>

#include "framework/ops/ops.h"

namespace halfstep {

// Called with a model's output and the target.
class Loss {
 public:
  virtual ~Loss() = default;
  virtual Tensor operator()(const Tensor& output, const Tensor& target) const = 0;
  virtual bool is_recordable() const { return false; }  // as Module::is_recordable
  virtual std::string describe() const = 0;
};

// A loss that is a function of the two and decides nothing on the host.
class FunctionLoss : public Loss {
 public:
  using Function = std::function<Tensor(const Tensor& output, const Tensor& target)>;
  FunctionLoss(std::string description, Function function) : description_(std::move(description)), function_(std::move(function)) {}
  Tensor operator()(const Tensor& output, const Tensor& target) const override { return function_(output, target); }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return description_; }

 private:
  std::string description_;
  Function function_;
};

struct LossOptions {
  LossReduction reduction = Reduction::mean;
};

// ---- a number against a number
class MSELoss : public FunctionLoss {
 public:
  explicit MSELoss(const LossOptions& options = {});
  explicit MSELoss(std::same_as<Reduction> auto reduction) : MSELoss(LossOptions{reduction}) {}
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
