// SPDX-License-Identifier: Apache-2.0
// Attention.
#pragma once

#include <concepts>
#include <optional>

#include "framework/base/generator.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct AttentionOptions {
  Tensor attn_mask = {};             // broadcasts to [..., H, L, S]: bool (false: left out) or floating (added to the scores)
  double dropout_p = 0;              // of the probabilities; applied whenever it is not 0
  bool is_causal = false;            // query i sees keys 0 to i; not together with a mask
  std::optional<double> scale = {};  // 1 / sqrt(E) unless given
  bool enable_gqa = false;           // key and value may have fewer heads: each serves H / Hk consecutive ones of query
  Generator* generator = nullptr;
};

// softmax(scale query key^T + mask) value. query [..., H, L, E], key [..., Hk, S, E], value [..., Hv, S, Ev], at least [L, E];
// batches and heads broadcast -> [..., H, L, Ev]. A query without any key to see gives 0. Autocast: low.
// Scores and probabilities exist for a few heads or rows at a time and are computed again in backward: memory grows with L + S.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});
// Positional arguments as in Python. An undefined mask is none.
inline Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& attn_mask,
                                           double dropout_p, bool is_causal = false, std::optional<double> scale = {}) {
  const AttentionOptions options{.attn_mask = attn_mask, .dropout_p = dropout_p, .is_causal = is_causal, .scale = scale};
  return scaled_dot_product_attention(query, key, value, options);
}
template <std::derived_from<Tensor> Mask>
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Mask& attn_mask) {
  return scaled_dot_product_attention(query, key, value, AttentionOptions{.attn_mask = attn_mask});
}

}  // namespace halfstep
