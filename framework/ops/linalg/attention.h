// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention.
#pragma once

#include <concepts>
#include <optional>

#include "framework/base/generator.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

struct AttentionOptions {
  Tensor attn_mask = {};             // broadcasts to [..., H, L, S]: bool (false: masked) or floating (added to the scores)
  double dropout_p = 0;              // of the probabilities; applied unless 0
  bool is_causal = false;            // query i sees keys 0 to i; not with a mask
  std::optional<double> scale = {};  // 1 / sqrt(E) by default
  bool enable_gqa = false;           // key and value may have fewer heads; each serves H / Hk consecutive heads of query
  Generator* generator = nullptr;    // of the dropout; null: the default generator
};

// Returns softmax(scale query key^T + mask) value. query [..., H, L, E], key [..., Hk, S, E], value [..., Hv, S, Ev], at least [L,
// E]; batches and heads broadcast -> [..., H, L, Ev]. A query that sees no key gives 0. Autocast: low. Scores and probabilities
// exist for a few heads or rows at a time and are recomputed in backward, so memory grows with L + S.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});
// Takes positional arguments as in Python. An undefined mask means none.
inline Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& attn_mask,
                                           double dropout_p, bool is_causal = false, std::optional<double> scale = {}) {
  const AttentionOptions options{.attn_mask = attn_mask, .dropout_p = dropout_p, .is_causal = is_causal, .scale = scale};
  return scaled_dot_product_attention(query, key, value, options);
}
// Takes a mask in fourth place. It is a template, so that braces there are AttentionOptions, not a Tensor.
template <std::derived_from<Tensor> Mask>
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Mask& attn_mask) {
  return scaled_dot_product_attention(query, key, value, AttentionOptions{.attn_mask = attn_mask});
}

}  // namespace halfstep
