// SPDX-License-Identifier: Apache-2.0
// Builds the library's graphs of attention. Needs no GPU: the test cudnn_plans passes exactly these graphs to the library.
//
//   forward   s = scale q k^T, with hidden scores at the lowest number;  top = max s, sum = sum e^(s - top) of a row
//             p = e^(s - top) / sum,  out = (p d) v,  stats = top + ln sum
//   backward  p = e^(s - stats),  dv = (p d)^T grad,  dp = grad v^T
//             ds = scale p (d dp - sum grad out),  dq = ds k,  dk = ds^T q
//
// d: 0 for a probability that dropout drops, else 1 / (1 - dropout); 1 without dropout.
#include <bit>
#include <limits>

#include "cuda/dnn/attention.h"

namespace halfstep::cuda::dnn {
namespace {

// Returns the strides of a contiguous tensor.
Numbers packed_strides(const Numbers& d) {
  Numbers strides(d.size());
  int64_t step = 1;
  for (size_t i = d.size(); i-- > 0; step *= d[i]) strides[i] = step;
  return strides;
}
Numbers swapped(Numbers d) {
  std::swap(d[2], d[3]);
  return d;
}

// The graph of one call under construction.
struct Builder {
  const AttentionProblem& p;
  OpGraph& g;
  Numbers scores{p.q[0], p.q[1], p.q[2], p.k[2]}, row{p.q[0], p.q[1], p.q[2], 1};

  GraphTensor tensor_in_memory(const Numbers& dims, const Numbers& strides) {
    return g.tensor(dims, strides.empty() ? packed_strides(dims) : strides, p.type);
  }
  // Adds k or v with these strides, transposed: [B, G, E, S].
  GraphTensor transposed(const Numbers& strides) { return g.tensor(swapped(p.k), swapped(strides), p.type); }
  GraphTensor rows() { return g.tensor(row, packed_strides(row), CUDNN_DATA_FLOAT); }
  GraphTensor row_between() { return g.between(row, packed_strides(row)); }
  GraphTensor scores_between(cudnnDataType_t type = CUDNN_DATA_FLOAT) { return g.between(scores, packed_strides(scores), type); }

  // Replaces scores of keys behind their query by the lowest number: with infinities, a tile without a visible key would give NaN.
  GraphTensor hide_later(const GraphTensor& s) {
    const GraphTensor low = g.constant(4, std::numeric_limits<float>::lowest());
    const GraphTensor query = g.pointwise(CUDNN_POINTWISE_GEN_INDEX, s, {.axis = 2}, CUDNN_DATA_INT32),
                      key = g.pointwise(CUDNN_POINTWISE_GEN_INDEX, s, {.axis = 3}, CUDNN_DATA_INT32);
    const GraphTensor seen = g.pointwise(CUDNN_POINTWISE_CMP_GE, query, {.b = &key}, CUDNN_DATA_BOOLEAN);
    return g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, s, {.b = &low, .t = &seen});
  }
  // Replaces scores beyond the queries or keys by the lowest number, and limits the products to data.
  GraphTensor hide_padding(const GraphTensor& s, const GraphTensor& queries, const GraphTensor& keys) {
    const GraphTensor low = g.constant(4, std::numeric_limits<float>::lowest());
    const GraphTensor query = g.pointwise(CUDNN_POINTWISE_GEN_INDEX, s, {.axis = 2}, CUDNN_DATA_INT32),
                      key = g.pointwise(CUDNN_POINTWISE_GEN_INDEX, s, {.axis = 3}, CUDNN_DATA_INT32);
    const GraphTensor is_query = g.pointwise(CUDNN_POINTWISE_CMP_LT, query, {.b = &queries}, CUDNN_DATA_BOOLEAN),
                      is_key = g.pointwise(CUDNN_POINTWISE_CMP_LT, key, {.b = &keys}, CUDNN_DATA_BOOLEAN);
    const GraphTensor is_score = g.pointwise(CUDNN_POINTWISE_LOGICAL_AND, is_query, {.b = &is_key}, CUDNN_DATA_BOOLEAN);
    return g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, s, {.b = &low, .t = &is_score});
  }
  // Returns 1 where a probability is kept. Depends only on seed and offset, so that both graphs drop the same ones.
  GraphTensor dropout_mask() {
    const Numbers one(4, 1);
    const GraphTensor seed = g.tensor(one, one, CUDNN_DATA_INT64), offset = g.tensor(one, one, CUDNN_DATA_INT64),
                      keep = scores_between();
    g.bernoulli(seed, offset, 1 - p.dropout, keep);
    return keep;
  }
  GraphTensor times(const GraphTensor& x, float factor) { return g.mul(x, g.constant(4, factor)); }
  // Returns the factor of probabilities that dropout keeps.
  float kept_factor() const { return float(1 / (1 - p.dropout)); }
};

}  // namespace

PlanKey AttentionProblem::key(bool backward) const {
  PlanKey key{'a', backward, int64_t(type), causal, std::bit_cast<int64_t>(dropout), std::bit_cast<int32_t>(scale), int64_t(mask)};
  for (const Numbers* n : {&q, &k, &q_strides, &k_strides, &v_strides, &out_strides, &dq_strides, &dk_strides, &dv_strides})
    key.insert(key.end(), n->begin(), n->end());
  return key;
}

std::unique_ptr<OpGraph> attention_graph(const AttentionProblem& p) {
  auto graph = std::make_unique<OpGraph>();
  OpGraph& g = *graph;
  Builder b{p, g};
  const GraphTensor q = g.tensor(p.q, p.q_strides, p.type), kt = b.transposed(p.k_strides), v = g.tensor(p.k, p.v_strides, p.type),
                    out = b.tensor_in_memory(p.q, p.out_strides), stats = b.rows();
  const GraphTensor raw = b.scores_between();
  g.matmul_to(q, kt, raw);
  GraphTensor s = b.times(raw, p.scale);
  if (p.causal) s = b.hide_later(s);
  const GraphTensor top = b.row_between(), sum = b.row_between();
  g.reduce_to(CUDNN_REDUCE_TENSOR_MAX, s, top);
  const GraphTensor e = g.pointwise(CUDNN_POINTWISE_EXP, g.pointwise(CUDNN_POINTWISE_SUB, s, {.b = &top}));
  g.reduce_to(CUDNN_REDUCE_TENSOR_ADD, e, sum);
  const GraphTensor log = g.pointwise(CUDNN_POINTWISE_LOG, sum);
  g.pointwise_to(CUDNN_POINTWISE_ADD, top, stats, {.b = &log});
  const bool drops = p.dropout > 0;
  GraphTensor probabilities = b.scores_between(drops ? CUDNN_DATA_FLOAT : p.type);
  g.pointwise_to(CUDNN_POINTWISE_DIV, e, probabilities, {.b = &sum});
  if (drops) {
    const GraphTensor keep = b.dropout_mask(), kept = g.mul(probabilities, keep), up = g.constant(4, b.kept_factor());
    probabilities = b.scores_between(p.type);
    g.pointwise_to(CUDNN_POINTWISE_MUL, kept, probabilities, {.b = &up});
  }
  g.matmul_to(probabilities, v, out);
  return graph;
}

std::unique_ptr<OpGraph> attention_backward_graph(const AttentionProblem& p) {
  auto graph = std::make_unique<OpGraph>();
  OpGraph& g = *graph;
  Builder b{p, g};
  const GraphTensor q = g.tensor(p.q, p.q_strides, p.type), kt = b.transposed(p.k_strides), vt = b.transposed(p.v_strides),
                    out = b.tensor_in_memory(p.q, p.out_strides), stats = b.rows(), grad = b.tensor_in_memory(p.q, p.out_strides),
                    dq = b.tensor_in_memory(p.q, p.dq_strides), dk = b.tensor_in_memory(p.k, p.dk_strides),
                    dv = b.tensor_in_memory(p.k, p.dv_strides), sums = b.rows();
  const bool masks = p.mask != PaddingMask::none;
  const Numbers one_each{p.q[0], 1, 1, 1}, ones(4, 1);
  const GraphTensor queries = masks ? g.tensor(one_each, ones, CUDNN_DATA_INT32) : GraphTensor(),
                    keys = masks ? g.tensor(one_each, ones, CUDNN_DATA_INT32) : GraphTensor();
  const GraphTensor* const L = masks ? &queries : nullptr;
  const GraphTensor* const S = masks ? &keys : nullptr;
  // If several query heads share a key head, each gets its own gradient, which are then summed.
  const bool shares = p.q[1] != p.k[1];
  const Numbers each_key{p.q[0], p.q[1], p.k[2], p.k[3]};
  const GraphTensor each_dk = shares ? g.tensor(each_key, packed_strides(each_key), p.type) : dk,
                    each_dv = shares ? g.tensor(each_key, packed_strides(each_key), p.type) : dv;
  const bool drops = p.dropout > 0;
  const std::optional<GraphTensor> keep = drops ? std::optional(b.dropout_mask()) : std::nullopt;
  const Numbers columns{p.q[0], p.q[1], p.k[2], p.q[2]},
      by_columns{b.scores[1] * b.scores[2] * b.scores[3], b.scores[2] * b.scores[3], 1, b.scores[3]};
  // Computes the common term of each row's gradient of the probabilities: the sum of grad * out.
  const GraphTensor product = g.between(p.q, packed_strides(p.q)), raw_sums = b.row_between();
  g.pointwise_to(CUDNN_POINTWISE_MUL, grad, product, {.b = &out});
  g.reduce_to(CUDNN_REDUCE_TENSOR_ADD, product, raw_sums);
  const GraphTensor share = g.constant(4, float(1 - p.dropout));
  g.pointwise_to(CUDNN_POINTWISE_MUL, raw_sums, sums, {.b = &share});
  // Recomputes the probabilities, and computes dv.
  const GraphTensor raw = b.scores_between();
  g.matmul_to(q, kt, raw, {.m = L, .n = S});
  GraphTensor s = b.times(raw, p.scale);
  if (masks) s = b.hide_padding(s, queries, keys);
  if (p.causal) s = b.hide_later(s);
  GraphTensor shifted = g.pointwise(CUDNN_POINTWISE_SUB, s, {.b = &stats});
  if (p.mask == PaddingMask::twice) shifted = b.hide_padding(shifted, queries, keys);
  const GraphTensor probabilities = g.pointwise(CUDNN_POINTWISE_EXP, shifted);
  const GraphTensor dropped = drops ? b.times(g.mul(probabilities, *keep), b.kept_factor()) : probabilities;
  const GraphTensor dropped_columns = g.between(columns, by_columns, p.type);
  g.reshape(dropped, dropped_columns);
  g.matmul_to(dropped_columns, grad, each_dv, {.m = S, .k = L});
  if (shares) g.reduce_to(CUDNN_REDUCE_TENSOR_ADD, each_dv, dv);
  // Computes the scores' gradient, dk and dq.
  const GraphTensor dp = b.scores_between();
  g.matmul_to(grad, vt, dp, {.m = L, .n = S});
  GraphTensor ds = g.mul(g.pointwise(CUDNN_POINTWISE_SUB, drops ? g.mul(dp, *keep) : dp, {.b = &sums}), probabilities);
  if (drops) ds = b.times(ds, b.kept_factor());
  ds = b.times(ds, p.scale);
  const GraphTensor ds_columns = g.between(columns, by_columns, p.type), k = g.between(p.k, p.k_strides, p.type);
  g.reshape(ds, ds_columns);
  g.matmul_to(ds_columns, q, each_dk, {.m = S, .k = L});
  if (shares) g.reduce_to(CUDNN_REDUCE_TENSOR_ADD, each_dk, dk);
  g.reshape(kt, k);
  g.matmul_to(ds, k, dq, {.m = L, .k = S});
  return graph;
}

}  // namespace halfstep::cuda::dnn
