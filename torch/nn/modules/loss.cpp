// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/modules/loss.h"

#include "torch/nn/modules/define.h"

namespace torch::nn {

#define HS_TORCH_LOSS(Name, function, shown) \
  HS_TORCH_DEFINE(Name)                      \
  void Name##Impl::reset() {}                \
  HS_TORCH_PRINT(Name, "(" << shown << ")")  \
  Tensor Name##Impl::forward(const Tensor& x, const Tensor& target) { return F::function(x, target, options); }
HS_TORCH_LOSSES(HS_TORCH_LOSS)
#undef HS_TORCH_LOSS
#define HS_TORCH_LOSS(Name, function, shown)                                         \
  HS_TORCH_DEFINE(Name)                                                              \
  void Name##Impl::reset() { weight = register_buffer("weight", options.weight()); } \
  HS_TORCH_PRINT(Name, "(" << shown << ")")                                          \
  Tensor Name##Impl::forward(const Tensor& x, const Tensor& target) {                \
    auto o = options;                                                                \
    return F::function(x, target, o.weight(weight));                                 \
  }
HS_TORCH_WEIGHTED_LOSSES(HS_TORCH_LOSS)
#undef HS_TORCH_LOSS
#define HS_TORCH_LOSS(Name, function, shown) \
  HS_TORCH_DEFINE(Name)                      \
  void Name##Impl::reset() {}                \
  HS_TORCH_PRINT(Name, "(" << shown << ")")  \
  Tensor Name##Impl::forward(const Tensor& a, const Tensor& b, const Tensor& c) { return F::function(a, b, c, options); }
HS_TORCH_PAIR_LOSSES(HS_TORCH_LOSS)
#undef HS_TORCH_LOSS

HS_TORCH_DEFINE(BCEWithLogitsLoss)
void BCEWithLogitsLossImpl::reset() {
  weight = register_buffer("weight", options.weight());
  pos_weight = register_buffer("pos_weight", options.pos_weight());
}
HS_TORCH_PRINT(BCEWithLogitsLoss, "()")
Tensor BCEWithLogitsLossImpl::forward(const Tensor& x, const Tensor& target) {
  auto o = options;
  return F::binary_cross_entropy_with_logits(x, target, o.weight(weight).pos_weight(pos_weight));
}

HS_TORCH_DEFINE(CTCLoss)
void CTCLossImpl::reset() {}
HS_TORCH_PRINT(CTCLoss, "()")
Tensor CTCLossImpl::forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                            const Tensor& target_lengths) {
  return F::ctc_loss(log_probs, targets, input_lengths, target_lengths, options);
}

}  // namespace torch::nn
