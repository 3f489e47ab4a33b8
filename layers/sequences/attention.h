// SPDX-License-Identifier: Apache-2.0
// Multi-head attention ("Attention Is All You Need", Vaswani et al., 2017).
//
//   MultiheadAttention attention(512, 8, {.batch_first = true});
//   auto [y, weights] = attention(query, key, value, {.key_padding_mask = padding, .need_weights = false});
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "layers/feedforward/linear.h"
#include "layers/module/layer.h"

namespace halfstep {

struct MultiheadAttentionOptions {
  double dropout = 0;
  bool bias = true;
  bool add_bias_kv = false;
  bool add_zero_attn = false;
  std::optional<int64_t> kdim = {};
  std::optional<int64_t> vdim = {};
  bool batch_first = false;
  bool is_causal = false;  // for attention(x)
  static const OptionList<MultiheadAttentionOptions>& list();
};

// Masks are bool, where true means "not seen", or floating and added to the scores.
struct AttentionInputs {
  Tensor key_padding_mask = {};      // [N, S], or [S] without a batch
  Tensor attn_mask = {};             // [L, S], or [N num_heads, L, S]
  bool need_weights = true;          // false: the weights are undefined, and never all in memory
  bool average_attn_weights = true;  // over the heads: [N, L, S], else [N, num_heads, L, S]
  bool is_causal = false;            // position i sees keys 0 to i. With an attn_mask: declares that the mask is that one

  template <class F>
  void each_tensor(F&& f) {
    f(key_padding_mask);
    f(attn_mask);
  }
};

// The output projection, with the class name that PyTorch prints.
class NonDynamicallyQuantizableLinear : public Linear {
 public:
  using Linear::Linear;
  std::string describe() const override { return "NonDynamicallyQuantizable" + Linear::describe(); }
};

// Computes, for each head with d = embed_dim / num_heads of the projected features, softmax(q k^T / sqrt(d) + mask) v, and
// projects the concatenated heads. query [L, N, embed_dim], key [S, N, kdim], value [S, N, vdim], or all without N; with
// batch_first N comes first. Returns the output, of query's shape, and the weights. A query that sees no key gets zeros, where
// PyTorch returns NaN. Parameters: in_proj_weight [3 embed_dim, embed_dim], or q_proj_weight, k_proj_weight and v_proj_weight if
// kdim or vdim differ, all from xavier_uniform_; in_proj_bias and out_proj.bias 0; bias_k and bias_v [1, 1, embed_dim] from
// xavier_normal_. Autocast: the products in 16 bits, the weights float32. Throws ValueError if num_heads does not divide
// embed_dim, ShapeError for inputs and masks of other shapes, DTypeError for integer masks.
class MultiheadAttention : public ModuleOf<MultiheadAttention> {
 public:
  using Options = MultiheadAttentionOptions;
  static constexpr const char* kName = "MultiheadAttention";
  static const Arguments<int64_t, int64_t>& arguments();
  using Result = std::pair<Tensor, Tensor>;  // output, weights
  using Call = Result(const Tensor&, const Tensor&, const Tensor&, const AttentionInputs&);
  MultiheadAttention(Integer embed_dim, Integer num_heads, const MultiheadAttentionOptions& options = {},
                     Generator* generator = nullptr);
  Result forward(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionInputs& inputs = {});
  Tensor forward(const Tensor& x) override;  // self-attention without weights
  using ModuleOf::operator();
  Result operator()(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionInputs& inputs) {
    return ModuleOf::operator()(query, key, value, inputs);
  }
  bool is_recordable() const override { return true; }
  std::string describe() const override { return "MultiheadAttention"; }

  Parameter in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight;  // the first, or the other three
  Parameter in_proj_bias, bias_k, bias_v;                                 // undefined if not used
  Part<NonDynamicallyQuantizableLinear> out_proj;

 private:
  struct Projected {
    Tensor q, k, v;      // [N, num_heads, L or S, embed_dim / num_heads]
    int64_t before = 0;  // number of keys of earlier passes (layers/sequences/decode.h)
  };
  void check_inputs(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionInputs& inputs) const;
  Projected project(const Tensor& query, const Tensor& key, const Tensor& value) const;
  Tensor heads(const Tensor& projected) const;
  void add_keys(Projected& p) const;
  void add_earlier(Projected& p, const AttentionInputs& inputs) const;
  int64_t added_keys() const { return (bias_k.defined() ? 1 : 0) + (options_.add_zero_attn ? 1 : 0); }
  Tensor mask(const AttentionInputs& inputs, const Projected& p) const;

  int64_t embed_dim_, num_heads_;
  MultiheadAttentionOptions options_;
};

}  // namespace halfstep
