// SPDX-License-Identifier: Apache-2.0
// Graphs of attention in the fake cuDNN, composed as cuDNN 9 takes them, against the op on the CPU.
#include <limits>

#include "halfstep.h"
#include "tests/emulators/fake_cudnn/cudnn_builder.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Problem {
  int64_t batch = 2, heads = 4, shared = 4, queries = 5, keys = 7, size = 8;
  bool causal = false;
  float dropout = 0;
  bool deterministic = true;
  Numbers q() const { return {batch, heads, queries, size}; }
  Numbers k() const { return {batch, shared, keys, size}; }
};
constexpr float kScale = 0.3f;

// [B, H, S, E] stored as [B, S, H, E].
Numbers heads_inside(const Numbers& d) { return {d[1] * d[2] * d[3], d[3], d[1] * d[3], 1}; }
Buffer buffer(DType t, const Numbers& dims, unsigned seed) {
  Buffer b = uniform(t, {dims[0], dims[2], dims[1], dims[3]}, seed, -1, 1);
  b.view.shape = {dims[0], dims[1], dims[2], dims[3]};
  const Numbers s = heads_inside(dims);
  b.view.strides = {s[0], s[1], s[2], s[3]};
  return b;
}
TensorView swapped(TensorView v) {
  std::swap(v.shape[2], v.shape[3]);
  std::swap(v.strides[2], v.strides[3]);
  return v;
}

struct Seeds {
  Buffer seed = make(DType::i64, {1, 1, 1, 1}, {5}), offset = make(DType::i64, {1, 1, 1, 1}, {3});
};

using T = DnnGraph::T;
struct Scores {
  DnnGraph& g;
  const Problem& p;
  Numbers dims{p.batch, p.heads, p.queries, p.keys}, row{p.batch, p.heads, p.queries, 1};

  T mul(const T& a, const T& b) { return g.pointwise(CUDNN_POINTWISE_MUL, a, &b); }
  T scaled(const T& q, const T& kt) {
    const T raw = g.middle(dims), scale = g.scalar(4, kScale);
    g.matmul(q, kt, raw);
    return mul(raw, scale);
  }
  T masked(const T& s) {
    if (!p.causal) return s;
    const T low = g.scalar(4, -std::numeric_limits<float>::infinity());
    const T query = g.pointwise(CUDNN_POINTWISE_GEN_INDEX, s, nullptr, nullptr, 2, CUDNN_DATA_INT32);
    const T key = g.pointwise(CUDNN_POINTWISE_GEN_INDEX, s, nullptr, nullptr, 3, CUDNN_DATA_INT32);
    const T seen = g.pointwise(CUDNN_POINTWISE_CMP_GE, query, &key, nullptr, -1, CUDNN_DATA_BOOLEAN);
    return g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, s, &low, &seen);
  }
  T kept(const OnDevice& seed, const OnDevice& offset) {
    const T keep = g.middle(dims);
    g.bernoulli(g.tensor(seed), g.tensor(offset), 1 - p.dropout, keep);
    return keep;
  }
};

void forward(const Problem& p, const Seeds& m, const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& o,
             const TensorView& stats) {
  DnnGraph g;
  Scores s{g, p};
  const OnDevice seed(m.seed), offset(m.offset);
  const T x = s.masked(s.scaled(g.tensor(q), g.tensor(swapped(k))));
  const T top = g.middle(s.row), sum = g.middle(s.row);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, x, top);
  const T e = g.pointwise(CUDNN_POINTWISE_EXP, g.pointwise(CUDNN_POINTWISE_SUB, x, &top));
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, e, sum);
  const T log = g.pointwise(CUDNN_POINTWISE_LOG, sum);
  g.pointwise_to(CUDNN_POINTWISE_ADD, top, g.tensor(stats), &log);
  T probabilities = g.pointwise(CUDNN_POINTWISE_DIV, e, &sum, nullptr, -1, p.dropout > 0 ? CUDNN_DATA_FLOAT : dnn_type(q.dtype));
  if (p.dropout > 0) {
    const T keep = s.kept(seed, offset), kept = s.mul(probabilities, keep), up = g.scalar(4, 1 / (1 - p.dropout));
    probabilities = g.pointwise(CUDNN_POINTWISE_MUL, kept, &up, nullptr, -1, dnn_type(q.dtype));
  }
  g.matmul(probabilities, g.tensor(v), g.tensor(o));
  g.run();
}

struct Views {
  TensorView q, k, v, o, stats, grad, dq, dk, dv;
};
void backward(const Problem& p, const Seeds& m, const Views& at, int64_t engine = -1) {
  DnnGraph g;
  Scores s{g, p};
  const OnDevice seed(m.seed), offset(m.offset), delta_memory(poisoned(DType::f32, {p.batch, p.heads, p.queries, 1}));
  const OnDevice sum_memory(make(DType::f32, {p.batch, p.heads, p.queries, p.size}));
  REQUIRE(cudaMemset(sum_memory.view.data, 0, size_t(numel(sum_memory.view.shape)) * 4) == cudaSuccess);
  const cudnnDataType_t type = dnn_type(at.q.dtype);
  const T q = g.tensor(at.q), kt = g.tensor(swapped(at.k)), vt = g.tensor(swapped(at.v)), o = g.tensor(at.o),
          grad = g.tensor(at.grad);
  const T stats = g.tensor(at.stats), scale = g.scalar(4, kScale), share = g.scalar(4, 1 - p.dropout);
  const bool drops = p.dropout > 0;
  const T up = drops ? g.scalar(4, 1 / (1 - p.dropout)) : T{};
  const T keep = drops ? s.kept(seed, offset) : T{};
  const T product = g.pointwise(CUDNN_POINTWISE_MUL, grad, &o), sums = g.middle(s.row), delta = g.tensor(delta_memory);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, product, sums);
  g.pointwise_to(CUDNN_POINTWISE_MUL, sums, delta, &share);
  const T x = s.masked(g.pointwise(CUDNN_POINTWISE_SUB, s.scaled(q, kt), &stats));
  const T probabilities = g.pointwise(CUDNN_POINTWISE_EXP, x);
  const Numbers columns{p.batch, p.heads, p.keys, p.queries};
  const auto transposed = [&](const T& t) {
    const T y = g.tensor(columns, {p.heads * p.keys * p.queries, p.keys * p.queries, 1, p.keys}, type, true);
    g.reshape(t, y);
    return y;
  };
  g.matmul(transposed(drops ? s.mul(s.mul(probabilities, keep), up) : probabilities), grad, g.tensor(at.dv));
  const T dp = g.middle(s.dims);
  g.matmul(grad, vt, dp);
  T ds = s.mul(g.pointwise(CUDNN_POINTWISE_SUB, drops ? s.mul(dp, keep) : dp, &delta), probabilities);
  if (drops) ds = s.mul(ds, up);
  ds = s.mul(ds, scale);
  g.matmul(transposed(ds), q, g.tensor(at.dk));
  const T k = g.tensor(p.k(), Numbers(at.k.strides.begin(), at.k.strides.end()), type, true);
  g.reshape(kt, k);
  if (p.deterministic) {
    g.matmul(ds, k, g.tensor(at.dq));
  } else {
    const T sum = g.tensor(sum_memory);
    g.matmul(ds, k, sum);
    g.pointwise_to(CUDNN_POINTWISE_IDENTITY, sum, g.tensor(at.dq));
  }
  g.run(engine);
}

Tensor tensor_of(const TensorView& v) {
  Tensor t = Tensor::empty(v.shape, {.dtype = DType::f32});
  for (int64_t i = 0; i < v.numel(); ++i) t.data_ptr<float>()[i] = float(get(v, i));
  return t;
}
void near(const TensorView& got, const Tensor& want, double tolerance, const char* what) {
  const Tensor w = want.contiguous();
  double worst = 0;
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double difference = std::abs(get(got, i) - double(w.data_ptr<float>()[i]));
    if (!(difference <= worst)) worst = difference;
  }
  CHECK_MESSAGE(worst <= tolerance, what, ": ", worst);
}

// Everything forward and backward, on the device.
struct Run {
  Run(const Problem& p, DType t) : Run(p, t, Seeds()) {}
  Run(const Problem& p, DType t, const Seeds& m)
      : q(buffer(t, p.q(), 1)),
        k(buffer(t, p.k(), 2)),
        v(buffer(t, p.k(), 3)),
        grad(buffer(t, p.q(), 4)),
        o(buffer(t, p.q(), 5)),
        dq(buffer(t, p.q(), 6)),
        dk(buffer(t, p.k(), 7)),
        dv(buffer(t, p.k(), 8)),
        stats(poisoned(DType::f32, {p.batch, p.heads, p.queries, 1})) {
    const OnDevice on_q(q), on_k(k), on_v(v), on_grad(grad), on_o(o), on_dq(dq), on_dk(dk), on_dv(dv), on_stats(stats);
    forward(p, m, on_q, on_k, on_v, on_o, on_stats);
    on_o.fetch();
    on_stats.fetch();
    if (p.heads != p.shared) return;
    backward(p, m, {on_q, on_k, on_v, on_o, on_stats, on_grad, on_dq, on_dk, on_dv});
    on_dq.fetch();
    on_dk.fetch();
    on_dv.fetch();
  }
  Buffer q, k, v, grad, o, dq, dk, dv, stats;
};

}  // namespace

TEST_CASE("cudnn: attention and its gradients") {
  for (DType t : {DType::f16, DType::bf16}) {
    for (const Problem& p :
         {Problem{}, Problem{.keys = 5, .causal = true}, Problem{.shared = 2}, Problem{.size = 16, .deterministic = false}}) {
      const Run run(p, t);
      const Tensor q = tensor_of(run.q).set_requires_grad(), k = tensor_of(run.k).set_requires_grad(),
                   v = tensor_of(run.v).set_requires_grad();
      const Tensor want = scaled_dot_product_attention(
          q, k, v, {.is_causal = p.causal, .scale = double(kScale), .enable_gqa = p.heads != p.shared});
      const double tolerance = 4 * epsilon(t);
      near(run.o, want, tolerance, "output");
      if (p.heads != p.shared) continue;
      want.backward(tensor_of(run.grad));
      near(run.dv, v.grad(), 2 * tolerance, "dv");
      near(run.dk, k.grad(), 2 * tolerance, "dk");
      near(run.dq, q.grad(), 2 * tolerance, "dq");
    }
  }
}

TEST_CASE("cudnn: attention drops the same probabilities forward and backward") {
  // With v all ones the output is the share that is kept, scaled up; with a gradient of ones, dv sums the same over queries.
  const Problem p{.queries = 16, .keys = 32, .dropout = 0.25f};
  const Seeds m;
  Run run(p, DType::f16, m);
  for (const Buffer& b : {run.v, run.grad}) {
    for (int64_t i = 0; i < b.numel(); ++i) set(b.view, i, 1);
  }
  const OnDevice q(run.q), k(run.k), v(run.v), grad(run.grad), o(run.o), dq(run.dq), dk(run.dk), dv(run.dv), stats(run.stats);
  forward(p, m, q, k, v, o, stats);
  backward(p, m, {q, k, v, o, stats, grad, dq, dk, dv});
  o.fetch();
  dv.fetch();
  double kept = 0, sums = 0;
  for (int64_t i = 0; i < run.o.numel(); ++i) kept += run.o[i] / double(run.o.numel());
  for (int64_t i = 0; i < run.dv.numel(); ++i) sums += run.dv[i] / double(run.o.numel());
  CHECK(kept == doctest::Approx(1).epsilon(0.05));
  CHECK(kept != doctest::Approx(1).epsilon(1e-5));
  CHECK(sums == doctest::Approx(kept).epsilon(2e-3));
  // Other numbers with another offset, the same with the same.
  const std::string first = run.o.raw();
  forward(p, m, q, k, v, o, stats);
  o.fetch();
  CHECK(run.o.raw() == first);
  const Seeds other;
  set(other.offset.view, 0, 4);
  forward(p, other, q, k, v, o, stats);
  o.fetch();
  CHECK(run.o.raw() != first);
}

TEST_CASE("cudnn: what attention is refused, and what its gradient needs") {
  const auto engines = [](const Problem& p, DType t) {
    DnnGraph g;
    const Buffer q = buffer(t, p.q(), 1), k = buffer(t, p.k(), 2), o = buffer(t, p.q(), 3);
    Scores s{g, p};
    const T x = s.scaled(g.tensor(q), g.tensor(swapped(k))),
            probabilities = g.pointwise(CUDNN_POINTWISE_EXP, x, nullptr, nullptr, -1, dnn_type(t));
    g.matmul(probabilities, g.tensor(k), g.tensor(o));
    return g.engines().size();
  };
  CHECK(engines({}, DType::f16) > 0);
  CHECK(engines({.size = 12}, DType::f16) == 0);
  CHECK(engines({.size = 264}, DType::f16) == 0);
  CHECK(engines({}, DType::f32) == 0);
}

TEST_CASE("cudnn: dQ in memory before it is narrowed is added to, in an order that varies") {
  const auto gradient = [] { return Run({.queries = 9, .size = 16, .deterministic = false}, DType::f16).dq.raw(); };
  const auto repeated = [] { return Run({.queries = 9, .size = 16}, DType::f16).dq.raw(); };
  CHECK(repeated() == repeated());
  CHECK(gradient() != gradient());
}
