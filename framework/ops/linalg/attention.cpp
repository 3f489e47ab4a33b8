// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention, for each head:
//
//   P = softmax(scale q k^T + mask)     y = (P * f) v     f: the factors of dropout, 0 or 1 / (1 - dropout_p)
//
//   dv = (P * f)^T g     dP = (g v^T) * f     dS = P * (dP - row sums of dP * P)
//   dq = scale dS k      dk = scale dS^T q    dmask = dS, summed where the mask broadcasts
//
// Computed chunk by chunk. A chunk is several whole heads, or some rows of one head. Its scores and probabilities fit into the
// cache (CPU) or bounded memory (CUDA), and are freed before the next chunk; backward computes P again. If the device has a library
// for attention (AttentionLibrary), that is tried first.
#include "framework/ops/linalg/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "framework/base/draws.h"
#include "framework/ops/core/call.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/linalg/heads.h"
#include "framework/ops/linalg/library_attention.h"
#include "framework/ops/linalg/products.h"
#include "framework/ops/ops.h"
#include "framework/ops/shape/views.h"

namespace halfstep {
namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();
constexpr int64_t kCausalRows = 256;  // CPU: rows of a causal chunk, few, so that it skips many keys
constexpr int64_t kScoresOnCpu = int64_t(1) << 18, kScoresOnGpu = int64_t(1) << 26;  // most scores of a chunk

struct AttentionAttr {
  double scale = 1, dropout_p = 0;
  bool causal = false;
  Generator::State state;
  Tensor factors = {};                                 // of dropout, [B, H, L, S], if a generator of kind mt19937 drew them
  std::shared_ptr<bool> dropped_by_library = nullptr;  // for dropout: whether the library drew its numbers
};

// Heads [head, head + heads) of batch `batch`, with query rows [row, row + rows) and keys [0, keys).
struct Chunk {
  int64_t batch, head, heads, row, rows, keys;
  Generator::State state;  // for its dropout
};

// Fully masked rows of queries are computed as if unmasked; then their results and gradients are set to 0.
struct Mask {
  Tensor mask, live;  // live: [.., L, 1] bool, whether the query sees a key; undefined without a mask

  static Mask of(const Tensor& mask) {
    if (!mask.defined()) return {};
    const bool boolean = mask.dtype() == DType::boolean;
    const Tensor detached = mask.detach(), live = any(boolean ? detached : ne(detached, kMinusInf), {-1}, true);
    return {boolean ? logical_or(mask, eq(live, 0.0)) : where(live, mask, 0.0), live};
  }
};

// Sets the rows of x that are not live to 0.
Tensor only_live(const Tensor& x, const Tensor& live) { return live.defined() ? where(live, x, 0.0) : x; }

// Returns [rows, columns]: column <= row.
Tensor triangle(int64_t rows, int64_t columns, Device device) {
  return le(arange(double(columns), {.device = device}), arange(double(rows), {.device = device}).unsqueeze(1));
}

constexpr int64_t kBlockOfNumbers = 4;  // random numbers that a generator makes at a time

// Returns how many such blocks one head's dropout uses.
int64_t blocks_of_a_head(int64_t rows, int64_t keys) { return (rows * keys + kBlockOfNumbers - 1) / kBlockOfNumbers; }

// The geometry of one call, and the state that its chunks share.
class Attention {
 public:
  // Prepares q [B, H, L, E], k [B, G, S, E] and v [B, G, S, Ev] for products of chunks. mask.mask: undefined, or 4-D and
  // broadcasting to [B, H, L, S].
  Attention(const AttentionAttr& attr, const Tensor& given_q, const Tensor& given_k, const Tensor& given_v, const Mask& mask)
      : attr_(attr),
        backend_(backend_for(given_q.device())),
        on_cpu_(!given_q.device().is_cuda()),
        batches_(given_q.size(0)),
        heads_(given_q.size(1)),
        rows_(given_q.size(2)),
        keys_(given_k.size(2)),
        shared_(heads_ / std::max<int64_t>(1, given_k.size(1))),
        dtype_(given_q.dtype()),
        wide_(widened(dtype_)),
        mask_(mask.mask) {
    // Makes the heads that share a key rows of one product.
    q_ = gemm_ready(given_q.reshape({batches_, given_k.size(1), shared_ * rows_, given_q.size(3)}));
    k_ = gemm_ready(given_k);
    v_ = gemm_ready(given_v);
    int exponent;
    const bool is_power_of_two = std::fabs(std::frexp(attr.scale, &exponent)) == 0.5;
    folded_ = !is_half(dtype_) || is_power_of_two;  // another scale would round a 16-bit q again
    if (folded_ && attr.scale != 1) q_ = gemm_ready(q_.mul(attr.scale));
    const bool one_mask = !mask_.defined() || (mask_.size(0) == 1 && mask_.size(1) == 1);
    if (one_mask && joins(q_) && joins(k_) && joins(v_)) {
      for (Tensor* t : {&q_, &k_, &v_}) *t = joined(*t);
      heads_ *= batches_;
      batches_ = 1;
    }
    if (attr.factors.defined()) factors_ = attr.factors.reshape({batches_, heads_, rows_, keys_});
    if (attr.causal) triangle_ = triangle(chunk_rows(), skips_keys() ? chunk_rows() : keys_, given_q.device());
  }

  DType wide() const { return wide_; }
  bool folded() const { return folded_; }
  bool whole_heads() const { return chunk_rows() >= rows_; }

  // Calls f(chunk) for all chunks, always in the same order.
  template <class F>
  void for_chunks(const F& f) const {
    const int64_t rows = chunk_rows();
    const int64_t each = shared_ * rows_ * keys_;
    const int64_t heads =
        whole_heads() ? std::min(heads_, std::max<int64_t>(1, most_scores() / std::max<int64_t>(1, each)) * shared_) : 1;
    for (int64_t b = 0; b < batches_; ++b) {
      for (int64_t h = 0; h < heads_; h += heads) {
        for (int64_t r = 0; r < rows_; r += rows) {
          Chunk chunk{b, h, std::min(heads, heads_ - h), r, std::min(rows, rows_ - r), keys_, attr_.state};
          if (skips_keys()) chunk.keys = std::min(keys_, chunk.row + chunk.rows);
          chunk.state.offset += uint64_t((b * heads_ + h) * blocks_of_a_head(rows_, keys_) + r * keys_ / kBlockOfNumbers);
          f(chunk);
        }
      }
    }
  }

  // Return the chunk's part of tensors in the layout of q, k, v.
  Tensor queries(const Tensor& x, const Chunk& chunk) const {
    const Strides& s = x.strides();
    return x.alias({groups(chunk), rows(chunk), x.size(3)}, {s[1], s[2], s[3]},
                   chunk.batch * s[0] + group(chunk) * s[1] + (chunk.head % shared_ * rows_ + chunk.row) * s[2]);
  }
  Tensor keys(const Tensor& x, const Chunk& chunk) const {
    const Strides& s = x.strides();
    return x.alias({groups(chunk), chunk.keys, x.size(3)}, {s[1], s[2], s[3]}, chunk.batch * s[0] + group(chunk) * s[1]);
  }
  Tensor q(const Chunk& chunk) const { return queries(q_, chunk); }
  Tensor k(const Chunk& chunk) const { return keys(k_, chunk); }
  Tensor v(const Chunk& chunk) const { return keys(v_, chunk); }
  // Return x [B, H, L, *] or [B, G, S, *] in this call's layout of q and k.
  Tensor like_queries(const Tensor& x) const { return x.reshape({batches_, heads_ / shared_, shared_ * rows_, x.size(-1)}); }
  Tensor like_keys(const Tensor& x) const { return x.reshape({batches_, heads_ / shared_, keys_, x.size(-1)}); }

  // Returns the softmax of the masked scores, [groups, rows, keys], in the operands' dtype.
  Tensor probabilities(const Chunk& chunk) const {
    const Tensor scores = product(q(chunk), k(chunk).transpose(1, 2), wide_);
    if (!folded_) scores.mul_(attr_.scale);
    const Tensor by_head = scores.alias({chunk.heads, chunk.rows, chunk.keys}, {chunk.rows * chunk.keys, chunk.keys, 1});
    if (mask_.defined()) {
      const TensorView m = mask_part(mask_, chunk).view();
      if (mask_.dtype() == DType::boolean)
        backend_.where(m, by_head.view(), broadcast_view(wrapped_number(kMinusInf, scores), by_head.shape()), by_head.view());
      else
        backend_.binary(Binary::add, by_head.view(), m, by_head.view());
    }
    if (attr_.causal) hide_later(by_head, chunk);
    const Tensor p = Tensor::empty(scores.shape(), {.dtype = dtype_, .device = scores.device()});
    backend_.softmax(scores.view(), p.view(), 2, false);
    return p;
  }
  // Returns x times the factors of dropout; the same ones for all tensors of a chunk.
  Tensor dropped(const Tensor& x, const Chunk& chunk) const {
    if (attr_.dropout_p == 0) return x;
    const Tensor out = Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
    if (factors_.defined()) {
      const auto by_head = [&](const Tensor& t) {
        return t.alias({chunk.heads, chunk.rows, chunk.keys}, {chunk.rows * chunk.keys, chunk.keys, 1}).view();
      };
      backend_.binary(Binary::mul, by_head(x), mask_part(factors_, chunk).to(x.dtype()).view(), by_head(out));
      return out;
    }
    // A head's numbers begin at a new block, so that they do not depend on which heads share a chunk or a batch.
    const int64_t each = chunk.rows * chunk.keys;
    const bool at_once = chunk.heads == 1 || each % kBlockOfNumbers == 0;
    const int64_t calls = at_once ? 1 : chunk.heads, numbers = at_once ? x.numel() : each;
    for (int64_t i = 0; i < calls; ++i) {
      Generator::State state = chunk.state;
      state.offset += uint64_t(i * blocks_of_a_head(chunk.rows, chunk.keys));
      backend_.dropout(x.alias({numbers}, {1}, i * numbers).view(), out.alias({numbers}, {1}, i * numbers).view(), attr_.dropout_p,
                       state);
    }
    return out;
  }
  // Adds ds to mask-shaped `sums`, summed where the mask broadcasts.
  void add_mask_gradient(const Tensor& ds, const Tensor& sums, const Chunk& chunk) const {
    Tensor into = mask_part(sums, chunk);
    Shape shape = into.shape();
    for (int d = 0; d < 3; ++d)
      if (into.strides()[d] == 0) shape[d] = 1;
    into = into.alias(shape, into.strides());
    const Tensor part = Tensor::empty(shape, {.dtype = wide_, .device = ds.device()}),
                 total = Tensor::empty(shape, {.dtype = wide_, .device = ds.device()});
    backend_.reduce(Reduce::sum, ds.alias({chunk.heads, chunk.rows, chunk.keys}, {chunk.rows * chunk.keys, chunk.keys, 1}).view(),
                    part.view());
    backend_.binary(Binary::add, part.view(), into.view(), total.view());
    backend_.copy(total.view(), into.view());
  }

 private:
  int64_t most_scores() const { return on_cpu_ ? kScoresOnCpu : kScoresOnGpu; }
  int64_t chunk_rows() const {
    const bool narrow = attr_.causal && attr_.dropout_p == 0 && on_cpu_ && rows_ >= 2 * kCausalRows;
    if (!narrow && shared_ * rows_ * keys_ <= most_scores()) return rows_;
    int64_t fit = std::max<int64_t>(1, most_scores() / std::max<int64_t>(1, keys_));
    if (attr_.dropout_p > 0)
      fit = std::max(kBlockOfNumbers, fit / kBlockOfNumbers * kBlockOfNumbers);  // each chunk begins a new block of random numbers
    return std::min(rows_, narrow ? std::min(fit, kCausalRows) : fit);
  }
  // Returns whether a chunk may skip keys that none of its rows sees. Dropout draws for all keys.
  bool skips_keys() const { return attr_.causal && attr_.dropout_p == 0 && !whole_heads(); }
  // Returns whether batches and heads can be one dimension.
  static bool joins(const Tensor& x) { return x.size(0) == 1 || x.size(1) == 1 || x.strides()[0] == x.size(1) * x.strides()[1]; }
  static Tensor joined(const Tensor& x) {
    const int64_t step = x.size(1) == 1 ? x.strides()[0] : x.strides()[1];
    return x.alias({1, x.size(0) * x.size(1), x.size(2), x.size(3)}, {0, step, x.strides()[2], x.strides()[3]});
  }
  int64_t group(const Chunk& chunk) const { return chunk.head / shared_; }
  int64_t groups(const Chunk& chunk) const { return std::max<int64_t>(1, chunk.heads / shared_); }
  int64_t rows(const Chunk& chunk) const { return chunk.heads * chunk.rows / groups(chunk); }

  // Returns a chunk's part of a mask, [heads, rows, keys], with strides of 0 where it broadcasts.
  Tensor mask_part(const Tensor& mask, const Chunk& chunk) const {
    const auto step = [&](int d) { return mask.size(d) == 1 ? 0 : mask.strides()[d]; };
    return mask.alias({chunk.heads, chunk.rows, chunk.keys}, {step(1), step(2), step(3)},
                      chunk.batch * step(0) + chunk.head * step(1) + chunk.row * step(2));
  }
  // Sets scores of keys after their query to -inf. There are such keys only from the chunk's first row on.
  void hide_later(const Tensor& scores, const Chunk& chunk) const {
    const int64_t width = chunk.keys - chunk.row;
    if (width <= 0) return;
    const Tensor block = scores.alias({chunk.heads, chunk.rows, width}, scores.strides(), chunk.row);
    const Tensor seen = triangle_.alias(block.shape(), {0, triangle_.strides()[0], 1});
    const bool in_place = chunk.row == 0;
    const Tensor out = in_place ? block : Tensor::empty(block.shape(), {.dtype = wide_, .device = scores.device()});
    backend_.where(seen.view(), block.view(), broadcast_view(wrapped_number(kMinusInf, scores), block.shape()), out.view());
    if (!in_place) backend_.copy(out.view(), block.view());
  }

  AttentionAttr attr_;
  Backend& backend_;
  bool on_cpu_;
  int64_t batches_, heads_, rows_, keys_;
  int64_t shared_;  // number of heads of q that share one head of k
  DType dtype_, wide_;
  Tensor q_, k_, v_, mask_, triangle_, factors_;
  bool folded_ = false;  // whether q_ includes the scale
};

struct Sdpa {
  using Attr = AttentionAttr;
  enum Saved : size_t { kQ, kK, kV, kMask, kUsedMask, kLive, kOutput, kStats };  // the last two only if the library ran
  static constexpr OpInfo info{
      .name = "scaled_dot_product_attention", .policy = CastPolicy::low, .doc = "softmax(scale q k^T + mask) v, by parts"};

  static Attributes describe(const Attr& attr) {
    return {{"scale", attr.scale}, {"dropout_p", attr.dropout_p}, {"is_causal", attr.causal}};
  }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor &q = in[0], &k = in[1], &v = in[2];
    const Mask mask = Mask::of(in[3]);
    for (const Tensor& t : in) ctx.save(t);
    ctx.save(mask.mask);
    ctx.save(mask.live);
    const TensorOptions like{.dtype = q.dtype(), .device = q.device()};
    const Shape shape{q.size(0), q.size(1), q.size(2), v.size(3)};
    if (k.size(2) == 0 || numel(shape) == 0) return zeros(shape, like);
    const bool by_ops = mask.mask.defined() || attr.factors.defined();
    if (const LibraryOutput done = by_ops ? LibraryOutput() : library_attention(for_library(attr, in), attr.state, ctx.recording());
        done.out.defined()) {
      if (attr.dropped_by_library) *attr.dropped_by_library = true;
      ctx.save_output(done.out);
      ctx.save(done.stats);
      return done.out;
    }
    const Tensor out = Tensor::empty(shape, like);
    const Attention attention(attr, q, k, v, mask);
    const Tensor rows = attention.like_queries(out);
    attention.for_chunks([&](const Chunk& chunk) {
      const Tensor p = attention.dropped(attention.probabilities(chunk), chunk);
      backend_for(q.device()).gemm({.a = p.view(), .b = attention.v(chunk).view(), .c = attention.queries(rows, chunk).view()});
    });
    return only_live(out, mask.live);
  }

  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor q = ctx.saved(kQ), k = ctx.saved(kK), v = ctx.saved(kV), live = ctx.saved(kLive);
    const auto zero = [&](const Tensor& t, DType dtype) { return zeros(t.shape(), {.dtype = dtype, .device = t.device()}); };
    Tensors result(4);
    if (k.size(2) == 0 || grads[0].numel() == 0) {
      for (size_t i = 0; i <= kMask; ++i)
        if (ctx.needs(i)) result[i] = zero(ctx.saved(i), ctx.grad_dtype(i));
      return result;
    }
    if (ctx.has_saved(kStats)) {
      const Tensors by_library = library_gradients(ctx, attr, {q, k, v}, grads[0]);
      for (size_t i = 0; i < by_library.size(); ++i)
        if (ctx.needs(i)) result[i] = by_library[i];
      if (!by_library.empty()) return result;
    }
    const Attention attention(attr, q, k, v, {ctx.saved(kUsedMask), live});
    const Tensor g = gemm_ready(attention.like_queries(only_live(grads[0], live)));
    // Kernels write the operands' dtype or float32. Sums over chunks of rows need the latter.
    const auto written_dtype = [&](size_t i) {
      return ctx.grad_dtype(i) == q.dtype() || attention.wide() == DType::f64 ? q.dtype() : attention.wide();
    };
    const bool adds = !attention.whole_heads();
    const auto key_gradient = [&](const Tensor& t, size_t i) {
      return adds ? zero(t, attention.wide()) : Tensor::empty(t.shape(), {.dtype = written_dtype(i), .device = t.device()});
    };
    Tensor dq, dk, dv, dmask, dq_rows, dk_rows, dv_rows;
    if (ctx.needs(kQ))
      dq_rows = attention.like_queries(dq = Tensor::empty(q.shape(), {.dtype = written_dtype(kQ), .device = q.device()}));
    if (ctx.needs(kK)) dk_rows = attention.like_keys(dk = key_gradient(k, kK));
    if (ctx.needs(kV)) dv_rows = attention.like_keys(dv = key_gradient(v, kV));
    if (ctx.needs(kMask)) dmask = zero(ctx.saved(kMask), attention.wide());
    const ChunkSums sums{dq_rows, dk_rows, dv_rows, dmask, adds};
    attention.for_chunks([&](const Chunk& chunk) { add_chunk(attention, chunk, attention.queries(g, chunk), sums); });
    if (dq.defined()) result[kQ] = dq.mul_(attr.scale);
    if (dk.defined()) result[kK] = (attention.folded() ? dk : dk.mul_(attr.scale)).to(written_dtype(kK));
    if (dv.defined()) result[kV] = dv.to(written_dtype(kV));
    result[kMask] = dmask;
    return result;
  }

  static Tensor composite(const Attr& attr, const Tensors& in) {
    check<AutogradError>(
        !attr.dropped_by_library || !*attr.dropped_by_library, info.name,
        "a gradient with create_graph needs to know what dropout left out, which the device's library does not report",
        Help{"HALFSTEP_CUDA_DNN=plain in the environment leaves the library out"});
    const DType dtype = in[0].dtype(), wide = widened(dtype);
    const int64_t heads = in[0].size(1), rows = in[0].size(2), keys = in[1].size(2);
    const auto of_every_head = [&](const Tensor& x) {
      return x.size(1) == heads ? x.to(wide) : repeat_interleave(x.to(wide), heads / x.size(1), 1);
    };
    const Mask mask = Mask::of(in[3]);
    Tensor scores = matmul(in[0].to(wide) * attr.scale, of_every_head(in[1]).transpose(-2, -1));
    if (mask.mask.defined())
      scores = mask.mask.dtype() == DType::boolean ? where(mask.mask, scores, kMinusInf) : scores + mask.mask;
    if (attr.causal) scores = where(triangle(rows, keys, scores.device()), scores, kMinusInf);
    Tensor p = softmax(scores, -1);
    if (attr.dropout_p > 0) p = p * kept(attr, in, mask, p);
    return only_live(matmul(p, of_every_head(in[2])), mask.live).to(dtype);
  }

 private:
  // Tensors for the gradients, dq, dk and dv in the layout of Attention, without the scale; undefined ones are not needed.
  struct ChunkSums {
    Tensor dq, dk, dv, dmask;
    bool adds;  // whether several chunks add to the same rows of dk and dv
  };
  // Computes the gradients of one chunk for its rows of the result's gradient.
  static void add_chunk(const Attention& attention, const Chunk& chunk, const Tensor& g, const ChunkSums& sums) {
    Backend& backend = backend_for(g.device());
    const Tensor p = attention.probabilities(chunk);
    if (sums.dv.defined())
      backend.gemm({.a = attention.dropped(p, chunk).transpose(1, 2).view(),
                    .b = g.view(),
                    .c = attention.keys(sums.dv, chunk).view(),
                    .accumulate = sums.adds});
    if (!sums.dq.defined() && !sums.dk.defined() && !sums.dmask.defined()) return;
    const Tensor dp = attention.dropped(product(g, attention.v(chunk).transpose(1, 2), attention.wide()), chunk);
    const Tensor ds = Tensor::empty(p.shape(), {.dtype = p.dtype(), .device = p.device()});
    backend.softmax_backward(dp.view(), p.view(), ds.view(), 2, false);
    if (sums.dmask.defined()) attention.add_mask_gradient(ds, sums.dmask, chunk);
    if (sums.dq.defined())
      backend.gemm({.a = ds.view(), .b = attention.k(chunk).view(), .c = attention.queries(sums.dq, chunk).view()});
    if (sums.dk.defined())
      backend.gemm({.a = ds.transpose(1, 2).view(),
                    .b = attention.q(chunk).view(),
                    .c = attention.keys(sums.dk, chunk).view(),
                    .accumulate = sums.adds});
  }
  // Returns the gradients of q, k and v from the library; empty if it declines.
  static Tensors library_gradients(const BackwardContext& ctx, const Attr& attr, const Tensors& in, const Tensor& g) {
    const std::array<DType, 3> wanted{ctx.grad_dtype(kQ), ctx.grad_dtype(kK), ctx.grad_dtype(kV)};
    return library_attention_backward(for_library(attr, in), attr.state, ctx.saved(kOutput), ctx.saved(kStats), g, wanted);
  }
  static LibraryAttention for_library(const Attr& attr, const Tensors& in) {
    return {.q = in[0], .k = in[1], .v = in[2], .scale = attr.scale, .causal = attr.causal, .dropout_p = attr.dropout_p};
  }
  // Returns the factor by which dropout multiplied each probability.
  static Tensor kept(const Attr& attr, const Tensors& in, const Mask& mask, const Tensor& p) {
    const NoGrad quiet;
    const Tensor all = ones_like(p), kept = Tensor::empty(p.shape(), {.dtype = p.dtype(), .device = p.device()});
    const Attention attention(attr, in[0], in[1], in[2], {mask.mask.defined() ? mask.mask.detach() : Tensor(), mask.live});
    const Tensor from = attention.like_queries(all), to = attention.like_queries(kept);
    attention.for_chunks([&](const Chunk& chunk) {
      backend_for(p.device())
          .copy(attention.dropped(attention.queries(from, chunk), chunk).view(), attention.queries(to, chunk).view());
    });
    return kept;
  }
};

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  constexpr std::string_view name = Sdpa::info.name;
  check_same_device(name, {query, key, value, options.attn_mask});
  const Heads shapes(query, key, value, options.enable_gqa);
  check<ValueError>(options.dropout_p >= 0 && options.dropout_p <= 1, name, "dropout_p must lie in [0, 1], got ",
                    options.dropout_p);
  check<ValueError>(!options.is_causal || !options.attn_mask.defined(), name, "a mask and is_causal exclude each other");

  std::array<Tensor, 4> in{query, key, value, options.attn_mask};
  apply_policy(Sdpa::info, in);
  check_same_dtype(name, {in[0], in[1], in[2]});
  check<DTypeError>(in[0].is_floating_point(), name, "needs floating tensors, got ", in[0].dtype());
  const DType mask_dtype = in[3].defined() ? in[3].dtype() : DType::boolean;
  check<DTypeError>(mask_dtype == DType::boolean || mask_dtype == DType::f32 || mask_dtype == in[0].dtype(), name,
                    "the mask must be bool, float32 or of query's dtype ", in[0].dtype(), ", got ", mask_dtype);
  const autocast::Off off;

  // Repeats a key for the heads that share it only where values are shared by another number of heads.
  const bool repeats = shapes.key_heads != shapes.value_heads;
  const Tensor q = shapes.four_dims(in[0], query.dim() < 3 ? 1 : query.size(-3), shapes.heads),
               k = shapes.four_dims(in[1], shapes.key_heads, repeats ? shapes.heads : shapes.key_heads),
               v = shapes.four_dims(in[2], shapes.value_heads, repeats ? shapes.heads : shapes.value_heads),
               mask = shapes.mask_of_four_dims(in[3]);
  AttentionAttr attr{options.scale.value_or(1 / std::sqrt(double(query.size(-1)))), options.dropout_p, options.is_causal, {}};
  if (query.size(-1) == 0 && !options.scale) attr.scale = 1;
  if (options.dropout_p > 0) {
    Generator& generator = options.generator ? *options.generator : default_generator();
    attr.dropped_by_library = std::make_shared<bool>(false);
    if (generator.kind() == GeneratorKind::mt19937)
      attr.factors = dropout_factors(q.new_empty({q.size(0), q.size(1), q.size(2), k.size(2)}), options.dropout_p, &generator);
    else
      attr.state =
          draw(generator, numel(shapes.batch) * shapes.heads * kBlockOfNumbers * blocks_of_a_head(query.size(-2), key.size(-2)))
              .state;
  }
  Shape out = shapes.scores();
  out[out.size() - 1] = value.size(-1);
  return as_result(call<Sdpa>({q, k, v, mask}, attr).reshape(out));
}

void add_attention(OpList& list) {
  list.add(Sdpa::info, [](Args& a) {
    return scaled_dot_product_attention(a.tensor(0), a.tensor(1), a.tensor(2),
                                        {.attn_mask = a.tensor_or_none(3),
                                         .dropout_p = a.number("dropout_p", 0),
                                         .is_causal = a.flag("is_causal", false),
                                         .scale = a.number_or_none("scale"),
                                         .enable_gqa = a.flag("enable_gqa", false)});
  });
}

}  // namespace halfstep
