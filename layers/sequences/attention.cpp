// SPDX-License-Identifier: Apache-2.0
#include "layers/sequences/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "framework/ops/linalg/attention.h"
#include "layers/module/init.h"
#include "layers/sequences/decode.h"

namespace halfstep {
namespace {

constexpr const char* kAttention = "MultiheadAttention";
constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

Tensor random_weight(int64_t out, int64_t in, Generator* generator) {
  const Tensor w = Tensor::empty({out, in});
  init::xavier_uniform_(w, 1, generator);
  return w;
}

Tensor random_row(int64_t width, Generator* generator) {
  const Tensor b = Tensor::empty({1, 1, width});
  init::xavier_normal_(b, 1, generator);
  return b;
}

void check_mask(const char* name, const Tensor& mask) {
  if (!mask.defined()) return;
  check<DTypeError>(mask.dtype() == DType::boolean || mask.is_floating_point(), kAttention, name, " must be bool or floating, got ",
                    mask.dtype());
}

// Converts a bool mask to numbers to add to scores; returns floating masks unchanged.
Tensor as_summand(const Tensor& mask, DType dtype) {
  if (mask.dtype() != DType::boolean) return mask;
  return masked_fill(zeros(mask.shape(), {.dtype = dtype, .device = mask.device()}), mask, kMinusInf);
}

// Returns the bool mask with the opposite meaning.
Tensor opposite(const Tensor& mask) { return eq(mask, 0.0); }

// Returns the mask with `count` more keys, which it lets all queries see.
Tensor with_added_keys(const Tensor& mask, int64_t count) {
  if (!mask.defined() || count == 0) return mask;
  Shape more = mask.shape();
  more[more.size() - 1] = count;
  return cat({mask, zeros(more, {.dtype = mask.dtype(), .device = mask.device()})}, -1);
}

// Keys and values of earlier positions, in memory with room for more, so that one more token costs one copy.
struct KeyValueCache {
  Tensor k, v;  // [N, num_heads, room, head size]
  int64_t length = 0;

  void add(const Tensor& more_k, const Tensor& more_v) {
    const int64_t new_length = length + more_k.size(2);
    if (!k.defined() || new_length > k.size(2)) {
      const int64_t room = std::max(new_length + kSpareRoom, k.defined() ? 2 * k.size(2) : 0);
      k = grown(k, more_k, room);
      v = grown(v, more_v, room);
    }
    k.narrow(2, length, more_k.size(2)).copy_(more_k);
    v.narrow(2, length, more_v.size(2)).copy_(more_v);
    length = new_length;
  }

 private:
  static constexpr int64_t kSpareRoom = 64;  // positions beyond those that are needed now

  Tensor grown(const Tensor& kept, const Tensor& like, int64_t room) const {
    const MemoryScope scope(MemoryTag::workspace);
    Shape shape = like.shape();
    shape[2] = room;
    const Tensor out = Tensor::empty(shape, {.dtype = like.dtype(), .device = like.device()});
    if (length > 0) out.narrow(2, 0, length).copy_(kept.narrow(2, 0, length));
    return out;
  }
};

// Computes the probabilities. mask: bool (true: seen), floating or undefined, as for scaled_dot_product_attention.
Tensor attention_weights(const Tensor& q, const Tensor& k, Tensor mask) {
  Tensor scores = matmul(q * (1 / std::sqrt(double(q.size(-1)))), k.transpose(-2, -1));
  if (!mask.defined()) return softmax(scores, -1);
  const bool boolean = mask.dtype() == DType::boolean;
  // Queries that see no key. Their scores stay finite, so that the softmax is not NaN, and their probabilities become 0.
  const Tensor blind = opposite(any(boolean ? mask : ne(mask.detach(), kMinusInf), {-1}, true));
  if (boolean)
    scores = masked_fill(scores, opposite(logical_or(mask, blind)), kMinusInf);
  else
    scores = scores + masked_fill(mask, blind, 0);
  return masked_fill(softmax(scores, -1), blind, 0);
}

}  // namespace

HALFSTEP_ARGUMENTS(MultiheadAttention, argument("embed_dim", "width of the input").at_least(1),
                   argument("num_heads", "heads, which divide the width").at_least(1))
HALFSTEP_OPTIONS(MultiheadAttentionOptions, option("dropout", &O::dropout, "probability").at_least(0).at_most(1),
                 option("bias", &O::bias, "add biases"),
                 option("add_bias_kv", &O::add_bias_kv, "a key and a value that are learned"),
                 option("add_zero_attn", &O::add_zero_attn, "a key and a value of zeros"),
                 option("kdim", &O::kdim, "embed_dim, if anything").at_least(1),
                 option("vdim", &O::vdim, "embed_dim, if anything").at_least(1),
                 option("batch_first", &O::batch_first, "[N, L, E]; false: [L, N, E]"),
                 option("is_causal", &O::is_causal, "a position attends to itself and those before it"))

MultiheadAttention::MultiheadAttention(Integer width, Integer heads, const MultiheadAttentionOptions& o, Generator* generator)
    : embed_dim_(width), num_heads_(heads), options_(o) {
  const int64_t embed_dim = width, num_heads = heads;
  check_arguments(kName, arguments(), embed_dim, num_heads);
  check<ValueError>(embed_dim % num_heads == 0, kAttention, "embed_dim must be divisible by num_heads, got ", embed_dim, " and ",
                    num_heads);
  check_options(kName, o);
  const int64_t kdim = o.kdim.value_or(embed_dim), vdim = o.vdim.value_or(embed_dim);
  MemoryScope tag(MemoryTag::parameters);
  const bool shares_weight = kdim == embed_dim && vdim == embed_dim;
  const auto projection = [&] { return NonDynamicallyQuantizableLinear(embed_dim, embed_dim, LinearOptions{o.bias}, generator); };
  // PyTorch draws the output's weights first.
  const bool draws_output_first = (generator ? *generator : default_generator()).kind() == GeneratorKind::mt19937;
  std::optional<NonDynamicallyQuantizableLinear> out;
  if (draws_output_first) out.emplace(projection());
  const auto weight = [&](bool is_used, int64_t rows, int64_t columns) {
    return is_used ? random_weight(rows, columns, generator) : Tensor();
  };
  in_proj_weight = register_parameter("in_proj_weight", weight(shares_weight, 3 * embed_dim, embed_dim));
  q_proj_weight = register_parameter("q_proj_weight", weight(!shares_weight, embed_dim, embed_dim));
  k_proj_weight = register_parameter("k_proj_weight", weight(!shares_weight, embed_dim, kdim));
  v_proj_weight = register_parameter("v_proj_weight", weight(!shares_weight, embed_dim, vdim));
  in_proj_bias = register_parameter("in_proj_bias", o.bias ? zeros({3 * embed_dim}) : Tensor());
  bias_k = register_parameter("bias_k", o.add_bias_kv ? random_row(embed_dim, generator) : Tensor());
  bias_v = register_parameter("bias_v", o.add_bias_kv ? random_row(embed_dim, generator) : Tensor());
  out_proj = add("out_proj", draws_output_first ? std::move(*out) : projection());
  if (o.bias) init::zeros_(out_proj->bias);
}

void MultiheadAttention::check_inputs(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const AttentionInputs& inputs) const {
  const int64_t rank = query.dim();
  check<ShapeError>((rank == 2 || rank == 3) && key.dim() == rank && value.dim() == rank, kAttention,
                    "query, key and value must all have 2 dimensions, or 3 with a batch, got ", query.shape(), ", ", key.shape(),
                    " and ", value.shape());
  const auto check_width = [](const char* name, const Tensor& t, const char* width_name, int64_t width) {
    check<ShapeError>(t.size(-1) == width, kAttention, name, "'s last dimension must be ", width_name, ", ", width, ", got ",
                      t.shape());
  };
  check_width("query", query, "embed_dim", embed_dim_);
  check_width("key", key, "kdim", options_.kdim.value_or(embed_dim_));
  check_width("value", value, "vdim", options_.vdim.value_or(embed_dim_));
  bool fit = key.size(0) == value.size(0) && key.size(-2) == value.size(-2);
  const int64_t batch_dim = options_.batch_first ? 0 : 1, sequence_dim = rank == 2 ? 0 : 1 - batch_dim;
  if (rank == 3) fit = fit && query.size(batch_dim) == key.size(batch_dim);
  check<ShapeError>(fit, kAttention, "query, key and value must have one batch, key and value one length, with batch_first=",
                    options_.batch_first ? "true" : "false", ", got ", query.shape(), ", ", key.shape(), " and ", value.shape());

  const int64_t batch = rank == 2 ? 1 : query.size(batch_dim), rows = query.size(sequence_dim), keys = key.size(sequence_dim);
  check_mask("key_padding_mask", inputs.key_padding_mask);
  check_mask("attn_mask", inputs.attn_mask);
  if (const Tensor& m = inputs.key_padding_mask; m.defined()) {
    const Shape want = rank == 2 ? Shape{keys} : Shape{batch, keys};
    check<ShapeError>(m.shape() == want, kAttention, "key_padding_mask must be ", rank == 2 ? "[S]" : "[N, S]", ", ", want,
                      ", got ", m.shape());
  }
  if (const Tensor& m = inputs.attn_mask; m.defined()) {
    const Shape flat{rows, keys}, full{batch * num_heads_, rows, keys};
    check<ShapeError>(m.shape() == flat || m.shape() == full, kAttention, "attn_mask must be [L, S], ", flat,
                      ", or [N num_heads, L, S], ", full, ", got ", m.shape());
  }
}

// Views a projection's result [N, L, embed_dim] or [L, N, embed_dim] as [N, num_heads, L, head size].
Tensor MultiheadAttention::heads(const Tensor& projected) const {
  const Tensor split = unflatten(projected, -1, {num_heads_, embed_dim_ / num_heads_});
  return options_.batch_first ? split.permute({0, 2, 1, 3}) : split.permute({1, 2, 0, 3});
}

MultiheadAttention::Projected MultiheadAttention::project(const Tensor& query, const Tensor& key, const Tensor& value) const {
  if (in_proj_weight.defined() && query.same(key) && key.same(value)) {  // one product forward, one for its gradient
    const Tensor packed = linear(query, in_proj_weight, in_proj_bias);
    const Tensors parts = unbind(unflatten(packed, -1, {3, embed_dim_}), -2);
    return {heads(parts[0]), heads(parts[1]), heads(parts[2])};
  }
  const Tensors bias = in_proj_bias.defined() ? chunk(in_proj_bias, 3) : Tensors(3);
  if (!in_proj_weight.defined())
    return {heads(linear(query, q_proj_weight, bias[0])), heads(linear(key, k_proj_weight, bias[1])),
            heads(linear(value, v_proj_weight, bias[2]))};
  if (key.same(value)) {
    const Tensor q = linear(query, in_proj_weight.narrow(0, 0, embed_dim_), bias[0]);
    const Tensor packed = linear(key, in_proj_weight.narrow(0, embed_dim_, 2 * embed_dim_),
                                 in_proj_bias.defined() ? in_proj_bias.narrow(0, embed_dim_, 2 * embed_dim_) : Tensor());
    const Tensors parts = unbind(unflatten(packed, -1, {2, embed_dim_}), -2);
    return {heads(q), heads(parts[0]), heads(parts[1])};
  }
  const Tensors weight = chunk(in_proj_weight, 3);
  return {heads(linear(query, weight[0], bias[0])), heads(linear(key, weight[1], bias[1])),
          heads(linear(value, weight[2], bias[2]))};
}

// Appends the learned key and value, and those of zeros.
void MultiheadAttention::add_keys(Projected& p) const {
  const auto add = [](const Tensor& to, const Tensor& row) {
    return cat({to, row.to(to.dtype()).expand({to.size(0), to.size(1), 1, to.size(3)})}, 2);
  };
  if (bias_k.defined()) {
    const Shape by_head{1, num_heads_, 1, embed_dim_ / num_heads_};
    p.k = add(p.k, bias_k.reshape(by_head));
    p.v = add(p.v, bias_v.reshape(by_head));
  }
  if (options_.add_zero_attn) {
    const Tensor none = zeros({1, 1, 1, embed_dim_ / num_heads_}, {.dtype = p.k.dtype(), .device = p.k.device()});
    p.k = add(p.k, none);
    p.v = add(p.v, none);
  }
}

// Within a DecodeScope: puts the keys and values of earlier passes in front of those of this one.
void MultiheadAttention::add_earlier(Projected& p, const AttentionInputs& inputs) const {
  const char* const need = "in a pass of a DecodeScope attention of a sequence to itself needs ";
  check<ValueError>(inputs.is_causal, kAttention, need, "is_causal, since later positions are not known yet");
  check<ValueError>(!inputs.attn_mask.defined() && !inputs.key_padding_mask.defined(), kAttention, need, "to have no masks");
  check<ValueError>(added_keys() == 0, kAttention, need, "neither add_bias_kv nor add_zero_attn");
  DecodeScope& pass = *DecodeScope::current();
  auto& kept = pass.kept<KeyValueCache>(*this);
  check<ShapeError>(!kept.k.defined() || kept.k.size(0) == p.k.size(0), kAttention,
                    "needs as many sequences as in the pass before, ",
                    kept.k.defined() ? kept.k.size(0) : 0, ", got ", p.k.size(0));
  p.before = kept.length;
  kept.add(p.k, p.v);
  pass.reached(kept.length);
  p.k = kept.k.narrow(2, 0, kept.length);
  p.v = kept.v.narrow(2, 0, kept.length);
}

// Returns one mask for scaled_dot_product_attention, where bool has the opposite meaning; undefined if everything is seen.
Tensor MultiheadAttention::mask(const AttentionInputs& inputs, const Projected& p) const {
  const int64_t batch = p.q.size(0), rows = p.q.size(2), more = added_keys(), keys = p.k.size(2) - more;
  Tensor scores = inputs.attn_mask, padding = inputs.key_padding_mask;
  const bool sees_all = p.before > 0 && rows == 1;
  if (!scores.defined() && inputs.is_causal && !sees_all)
    scores = triu(ones({rows, keys}, {.dtype = DType::boolean, .device = p.q.device()}), p.before + 1);
  if (scores.defined() && scores.dim() == 3) scores = scores.reshape({batch, num_heads_, rows, keys});
  if (padding.defined()) padding = padding.reshape({batch, 1, 1, keys});
  scores = with_added_keys(scores, more);
  padding = with_added_keys(padding, more);
  if (!scores.defined() || !padding.defined()) {
    const Tensor only = scores.defined() ? scores : padding;
    return only.defined() && only.dtype() == DType::boolean ? opposite(only) : only;
  }
  if (scores.dtype() == DType::boolean && padding.dtype() == DType::boolean) return opposite(logical_or(scores, padding));
  const DType dtype = scores.dtype() == DType::boolean ? padding.dtype() : scores.dtype();
  return as_summand(scores, dtype) + as_summand(padding, dtype);
}

MultiheadAttention::Result MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                       const AttentionInputs& inputs) {
  check_inputs(query, key, value, inputs);
  const bool batched = query.dim() == 3;
  if (!batched) {
    const auto grow = [&](const Tensor& t) { return t.unsqueeze(options_.batch_first ? 0 : 1); };
    const Tensor q = grow(query), k = key.same(query) ? q : grow(key);
    AttentionInputs more = inputs;
    if (more.key_padding_mask.defined()) more.key_padding_mask = more.key_padding_mask.unsqueeze(0);
    auto [y, weights] = forward(q, k, value.same(key) ? k : grow(value), more);
    return {y.squeeze(options_.batch_first ? 0 : 1), weights.defined() ? weights.squeeze(0) : weights};
  }
  Projected p = project(query, key, value);
  add_keys(p);
  if (DecodeScope::current() && query.same(key) && key.same(value)) add_earlier(p, inputs);
  const double dropout_p = training() ? options_.dropout : 0;
  Tensor weights, y;  // y: [N, num_heads, L, head size]
  if (inputs.need_weights) {
    weights = attention_weights(p.q, p.k, mask(inputs, p));
    if (dropout_p > 0) weights = dropout(weights, dropout_p);
    y = matmul(weights, p.v);
    if (inputs.average_attn_weights) weights = weights.mean({1});
  } else {
    const bool causal = inputs.is_causal && !inputs.key_padding_mask.defined() && added_keys() == 0 && p.before == 0;
    AttentionOptions o{.dropout_p = dropout_p, .is_causal = causal};
    if (!causal) o.attn_mask = mask(inputs, p);
    y = scaled_dot_product_attention(p.q, p.k, p.v, o);
  }
  return {out_proj((options_.batch_first ? y.permute({0, 2, 1, 3}) : y.permute({2, 0, 1, 3})).flatten(2)), weights};
}

Tensor MultiheadAttention::forward(const Tensor& x) {
  return forward(x, x, x, {.need_weights = false, .is_causal = options_.is_causal}).first;
}

}  // namespace halfstep
