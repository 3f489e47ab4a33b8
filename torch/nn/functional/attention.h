// SPDX-License-Identifier: Apache-2.0
// Attention of several heads.
#pragma once

#include "torch/nn/functional/base.h"

namespace torch::nn::functional {

struct MultiheadAttentionForwardFuncOptions {
  MultiheadAttentionForwardFuncOptions(int64_t e, int64_t h, Tensor w, Tensor b, Tensor bk, Tensor bv, bool zero, double p,
                                       Tensor ow, Tensor ob)
      : embed_dim_to_check_(e),
        num_heads_(h),
        in_proj_weight_(w),
        in_proj_bias_(b),
        bias_k_(bk),
        bias_v_(bv),
        add_zero_attn_(zero),
        dropout_p_(p),
        out_proj_weight_(ow),
        out_proj_bias_(ob) {}
  TORCH_ARG(int64_t, embed_dim_to_check);
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(Tensor, in_proj_weight);
  TORCH_ARG(Tensor, in_proj_bias);
  TORCH_ARG(Tensor, bias_k);
  TORCH_ARG(Tensor, bias_v);
  TORCH_ARG(bool, add_zero_attn);
  TORCH_ARG(double, dropout_p);
  TORCH_ARG(Tensor, out_proj_weight);
  TORCH_ARG(Tensor, out_proj_bias);
  HS_TORCH_ARG(bool, training, true);
  HS_TORCH_ARG(Tensor, key_padding_mask, Tensor());
  HS_TORCH_ARG(bool, need_weights, true);
  HS_TORCH_ARG(Tensor, attn_mask, Tensor());
  HS_TORCH_ARG(bool, use_separate_proj_weight, false);
  HS_TORCH_ARG(Tensor, q_proj_weight, Tensor());
  HS_TORCH_ARG(Tensor, k_proj_weight, Tensor());
  HS_TORCH_ARG(Tensor, v_proj_weight, Tensor());
  HS_TORCH_ARG(Tensor, static_k, Tensor());
  HS_TORCH_ARG(Tensor, static_v, Tensor());
  HS_TORCH_ARG(bool, average_attn_weights, true);
};
// Takes and returns [L, N, E], and the weights.
std::tuple<Tensor, Tensor> multi_head_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                        const MultiheadAttentionForwardFuncOptions& o);

}  // namespace torch::nn::functional
