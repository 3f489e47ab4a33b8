// SPDX-License-Identifier: Apache-2.0
// The options of losses.
#pragma once

#include "torch/nn/enums.h"

namespace torch::nn {

using loss_reduction_t = std::variant<enumtype::kNone, enumtype::kMean, enumtype::kSum>;

// ---- losses
#define HS_LOSS(Name)                                                                      \
  struct Name##Options {                                                                   \
    using reduction_t = loss_reduction_t;                                                  \
    Name##Options() = default;                                                             \
    Name##Options(reduction_t r) : reduction_(r) {}                                        \
    template <class E>                                                                     \
    requires std::is_constructible_v<reduction_t, E> Name##Options(E e) : reduction_(e) {} \
    HS_TORCH_ARG(reduction_t, reduction, kMean);                                           \
  };
HS_LOSS(L1Loss)
HS_LOSS(MSELoss) HS_LOSS(MultiLabelMarginLoss) HS_LOSS(SoftMarginLoss)
#undef HS_LOSS
    struct SmoothL1LossOptions {
  using reduction_t = loss_reduction_t;
  SmoothL1LossOptions() = default;
  template <class E>
  requires std::is_constructible_v<reduction_t, E> SmoothL1LossOptions(E e) : reduction_(e) {}
  HS_TORCH_ARG(reduction_t, reduction, kMean);
  HS_TORCH_ARG(double, beta, 1.0);
};
struct HuberLossOptions {
  using reduction_t = loss_reduction_t;
  HuberLossOptions() = default;
  template <class E>
  requires std::is_constructible_v<reduction_t, E> HuberLossOptions(E e) : reduction_(e) {}
  HS_TORCH_ARG(reduction_t, reduction, kMean);
  HS_TORCH_ARG(double, delta, 1.0);
};
struct BCELossOptions {
  using reduction_t = loss_reduction_t;
  HS_TORCH_ARG(Tensor, weight, Tensor());
  HS_TORCH_ARG(reduction_t, reduction, kMean);
};
struct BCEWithLogitsLossOptions {
  using reduction_t = loss_reduction_t;
  HS_TORCH_ARG(Tensor, weight, Tensor());
  HS_TORCH_ARG(reduction_t, reduction, kMean);
  HS_TORCH_ARG(Tensor, pos_weight, Tensor());
};
struct MultiLabelSoftMarginLossOptions {
  using reduction_t = loss_reduction_t;
  HS_TORCH_ARG(Tensor, weight, Tensor());
  HS_TORCH_ARG(reduction_t, reduction, kMean);
};
struct NLLLossOptions {
  using reduction_t = loss_reduction_t;
  HS_TORCH_ARG(Tensor, weight, Tensor());
  HS_TORCH_ARG(int64_t, ignore_index, -100);
  HS_TORCH_ARG(reduction_t, reduction, kMean);
};
struct CrossEntropyLossOptions {
  using reduction_t = loss_reduction_t;
  HS_TORCH_ARG(Tensor, weight, Tensor());
  HS_TORCH_ARG(int64_t, ignore_index, -100);
  HS_TORCH_ARG(reduction_t, reduction, kMean);
  HS_TORCH_ARG(double, label_smoothing, 0.0);
};
struct KLDivLossOptions {
  using reduction_t = std::variant<enumtype::kNone, enumtype::kBatchMean, enumtype::kSum, enumtype::kMean>;
  KLDivLossOptions() = default;
  template <class E>
  requires std::is_constructible_v<reduction_t, E> KLDivLossOptions(E e) : reduction_(e) {}
  HS_TORCH_ARG(reduction_t, reduction, kMean);
  HS_TORCH_ARG(bool, log_target, false);
};
struct HingeEmbeddingLossOptions {
  using reduction_t = loss_reduction_t;
  HS_TORCH_ARG(double, margin, 1.0);
  HS_TORCH_ARG(reduction_t, reduction, kMean);
};
struct MultiMarginLossOptions {
  using reduction_t = loss_reduction_t;
  HS_TORCH_ARG(int64_t, p, 1);
  HS_TORCH_ARG(double, margin, 1.0);
  HS_TORCH_ARG(Tensor, weight, Tensor());
  HS_TORCH_ARG(reduction_t, reduction, kMean);
};
struct CosineEmbeddingLossOptions {
  using reduction_t = loss_reduction_t;
  HS_TORCH_ARG(double, margin, 0.0);
  HS_TORCH_ARG(reduction_t, reduction, kMean);
};
struct TripletMarginLossOptions {
  using reduction_t = loss_reduction_t;
  HS_TORCH_ARG(double, margin, 1.0);
  HS_TORCH_ARG(double, p, 2.0);
  HS_TORCH_ARG(double, eps, 1e-6);
  HS_TORCH_ARG(bool, swap, false);
  HS_TORCH_ARG(reduction_t, reduction, kMean);
};
struct TripletMarginWithDistanceLossOptions {
  using reduction_t = loss_reduction_t;
  using distance_function_t = std::function<Tensor(const Tensor&, const Tensor&)>;
  HS_TORCH_ARG(std::optional<distance_function_t>, distance_function, std::nullopt);
  HS_TORCH_ARG(double, margin, 1.0);
  HS_TORCH_ARG(bool, swap, false);
  HS_TORCH_ARG(reduction_t, reduction, kMean);
};
struct CTCLossOptions {
  using reduction_t = loss_reduction_t;
  HS_TORCH_ARG(int64_t, blank, 0);
  HS_TORCH_ARG(reduction_t, reduction, kMean);
  HS_TORCH_ARG(bool, zero_infinity, false);
};
struct PoissonNLLLossOptions {
  using reduction_t = loss_reduction_t;
  HS_TORCH_ARG(bool, log_input, true);
  HS_TORCH_ARG(bool, full, false);
  HS_TORCH_ARG(double, eps, 1e-8);
  HS_TORCH_ARG(reduction_t, reduction, kMean);
};
struct MarginRankingLossOptions {
  using reduction_t = loss_reduction_t;
  HS_TORCH_ARG(double, margin, 0.);
  HS_TORCH_ARG(reduction_t, reduction, kMean);
};

}  // namespace torch::nn
