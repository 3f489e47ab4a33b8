// SPDX-License-Identifier: Apache-2.0
// Attention.
#pragma once

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

}  // namespace halfstep
