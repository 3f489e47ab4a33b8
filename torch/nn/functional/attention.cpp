// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/functional/attention.h"

namespace torch::nn::functional {
namespace {

// Projects query, key and value: [L, N, E], with one weight for all or one each.
std::vector<Tensor> project(const Tensor& query, const Tensor& key, const Tensor& value,
                            const MultiheadAttentionForwardFuncOptions& o) {
  const int64_t E = query.size(2);
  auto part = [&](const Tensor& t, int64_t i) { return t.defined() ? t.slice(0, i * E, (i + 1) * E) : Tensor(); };
  const Tensor in[] = {query, key, value}, own[] = {o.q_proj_weight(), o.k_proj_weight(), o.v_proj_weight()};
  std::vector<Tensor> out;
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor w = o.use_separate_proj_weight() ? own[i] : part(o.in_proj_weight(), i);
    out.push_back(::torch::linear(in[i], w, part(o.in_proj_bias(), i)));
  }
  return out;
}
// Appends a column that hides nothing.
void widen(Tensor& mask) {
  if (mask.defined()) mask = torch::cat({mask, torch::zeros({mask.size(0), 1}, mask.options())}, 1);
}
// Returns the weights of attention: [N H, L, S].
Tensor weights_of(const Tensor& q, const Tensor& k, const Tensor& mask, const Tensor& padding, int64_t heads) {
  const double hidden = -std::numeric_limits<double>::infinity();
  Tensor w = torch::bmm(q, k.transpose(1, 2));
  const int64_t L = w.size(1), S = w.size(2), N = w.size(0) / heads;
  if (mask.defined()) w = mask.scalar_type() == kBool ? w.masked_fill(mask, hidden) : w + mask;
  if (padding.defined()) {
    const Tensor hide = padding.to(kBool).unsqueeze(1).unsqueeze(2);
    w = w.view({N, heads, L, S}).masked_fill(hide, hidden).view({N * heads, L, S});
  }
  return w.softmax(-1);
}

}  // namespace

std::tuple<Tensor, Tensor> multi_head_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                        const MultiheadAttentionForwardFuncOptions& o) {
  const int64_t L = query.size(0), N = query.size(1), E = query.size(2), H = o.num_heads(), d = E / H;
  TORCH_CHECK(E == o.embed_dim_to_check(), "Expected queries of the width ", o.embed_dim_to_check(), ", got ", E);
  TORCH_CHECK(d * H == E, "embed_dim must be divisible by num_heads");
  std::vector<Tensor> qkv = project(query, key, value, o);
  Tensor q = qkv[0] * std::pow(double(d), -0.5), k = qkv[1], v = qkv[2];
  Tensor mask = o.attn_mask(), padding = o.key_padding_mask();
  if (o.bias_k().defined() && o.bias_v().defined()) {
    TORCH_CHECK(!o.static_k().defined(), "bias cannot be added to static key.");
    TORCH_CHECK(!o.static_v().defined(), "bias cannot be added to static value.");
    k = torch::cat({k, o.bias_k().repeat({1, N, 1})}, 0);
    v = torch::cat({v, o.bias_v().repeat({1, N, 1})}, 0);
    widen(mask);
    widen(padding);
  }
  auto by_head = [&](const Tensor& t) { return t.contiguous().view({-1, N * H, d}).transpose(0, 1); };
  q = by_head(q);
  k = o.static_k().defined() ? o.static_k() : by_head(k);
  v = o.static_v().defined() ? o.static_v() : by_head(v);
  if (o.add_zero_attn()) {
    k = torch::cat({k, torch::zeros({k.size(0), 1, d}, k.options())}, 1);
    v = torch::cat({v, torch::zeros({v.size(0), 1, d}, v.options())}, 1);
    widen(mask);
    widen(padding);
  }
  Tensor w = torch::dropout(weights_of(q, k, mask, padding, H), o.dropout_p(), o.training());
  const Tensor joined = torch::bmm(w, v).transpose(0, 1).contiguous().view({L, N, E});
  const Tensor out = ::torch::linear(joined, o.out_proj_weight(), o.out_proj_bias());
  if (!o.need_weights()) return {out, Tensor()};
  w = w.view({N, H, L, -1});
  return {out, o.average_attn_weights() ? w.mean(IntArrayRef(1)) : w};
}

}  // namespace torch::nn::functional
