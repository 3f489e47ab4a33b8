// How a product with its extras is cut into calls: as much as one epilogue takes, and kernels for the rest.
#include "cuda/blas/gemm.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#ifndef HALFSTEP_NO_CUBLASLT  // the emulated build where the library's header is not installed
#include "cuda/blas/cublaslt.h"
#include "cuda/blas/matmul.h"
#endif

namespace halfstep::cuda {
namespace {

// ---- the parts of a request

// The matrix that c is, with the rows of a batch below each other.
TensorView flat(const TensorView& c) {
  const int64_t columns = c.shape.back(), rows = columns > 0 ? c.numel() / columns : 0;
  return {c.data, c.dtype, {rows, columns}, {columns, 1}};
}

// Where activations are steps of their own, they start from z = a b + bias, rounded once.
GemmArgs with_bias(const GemmArgs& g) { return {.a = g.a, .b = g.b, .c = g.c, .bias = g.bias, .accumulate = g.accumulate}; }

// out[j] = the sum over the first dimension of a matrix.
void sum_rows(const Queue& q, const TensorView& x, const TensorView& out) {
  reduce(q, Reduce::sum, x, {out.data, out.dtype, {1, x.shape[1]}, {x.shape[1] * out.strides[0], out.strides[0]}});
}

// What `wanted` has beyond `done`, which has left its result in c.
void finish(const Queue& q, const GemmArgs& wanted, const GemmArgs& done) {
  const TensorView c = flat(wanted.c);
  if (wanted.derivative && !done.derivative) {
    activation_derivative(q, c, wanted.activation, wanted.aux, c);
  } else if (is_floating(c.dtype)) {
    const bool bias = wanted.bias && !done.bias, activation = wanted.activation != done.activation;
    if (bias || activation) bias_activation(q, c, bias ? wanted.bias : TensorView{}, wanted.activation, wanted.aux, c);
  } else if (wanted.activation == Activation::relu) {
    unary(q, Unary::relu, c, c);
  }
  if (wanted.column_sum && !done.column_sum) sum_rows(q, c, wanted.column_sum);
  if (wanted.a_row_sum && !done.a_row_sum) {
    const TensorView& a = wanted.a;
    sum_rows(q, {a.data, a.dtype, {a.shape[1], a.shape[0]}, {a.strides[1], a.strides[0]}}, wanted.a_row_sum);
  }
}

void plain_gemm(const Queue& q, const GemmArgs& g) {
  plain_product(q, g.a, g.b, g.bias, g.c, g.accumulate);
  finish(q, g, with_bias(g));
}

#ifndef HALFSTEP_NO_CUBLASLT
GemmArgs bare(const GemmArgs& g) { return {.a = g.a, .b = g.b, .c = g.c, .accumulate = g.accumulate}; }
bool is_bare(const GemmArgs& g) { return !g.bias && g.activation == Activation::none && !g.column_sum && !g.a_row_sum; }

double environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::strtod(value, nullptr) : 0;
}

// What set_gemm_tuning() was given.
std::atomic<double>& tuned_gflop() {
  static std::atomic<double> gflop{environment("HALFSTEP_TUNE")};
  return gflop;
}

// The part of g that one epilogue may do: its vector is packed and of c's dtype.
GemmArgs one_epilogue(const GemmArgs& g) {
  const auto fits = [&](const TensorView& v) { return !v || (v.dtype == g.c.dtype && (v.shape[0] == 1 || v.strides[0] == 1)); };
  GemmArgs part = bare(g);
  if (g.accumulate && g.activation != Activation::none) return part;
  if (fits(g.bias)) {
    part.bias = g.bias;
    part.activation = g.activation;
    part.aux = g.aux;
    part.derivative = g.derivative;
    if (g.derivative && fits(g.column_sum)) part.column_sum = g.column_sum;
  }
  if (is_bare(part) && fits(g.a_row_sum)) part.a_row_sum = g.a_row_sum;
  return part;
}

// Ways to do g, from the most that is fused to the bare product. Each leaves the rest to finish().
struct Ladder {
  GemmArgs rungs[4];
  int count = 0;

  explicit Ladder(const GemmArgs& g) {
    const GemmArgs part = one_epilogue(g);
    if (!is_bare(part)) rungs[count++] = part;
    if (part.column_sum) {  // a derivative may be fused where its sum is not
      rungs[count] = part;
      rungs[count++].column_sum = {};
    }
    if (part.bias && part.activation != Activation::none) rungs[count++] = with_bias(part);
    rungs[count++] = bare(g);
  }
  // g by the first rung from `top` down that the library takes.
  void run(const Queue& q, const GemmArgs& g, int top) const {
    for (int i = top; i < count; ++i) {
      if (matmul(q, rungs[i])) return finish(q, g, rungs[i]);
    }
    plain_gemm(q, g);
  }
  // Each rung against those below it, so from the bottom.
  void tune(const Queue& q) const {
    for (int i = count; i-- > 0;) {
      const auto twin = [&] { run(q, rungs[i], i + 1); };
      tune_matmul(q, rungs[i], i + 1 < count ? std::function<void()>(twin) : nullptr);
    }
  }
};

void library_gemm(const Queue& q, const GemmArgs& g) {
  const Ladder ladder(g);
  const double gflop = 2e-9 * double(g.c.numel()) * double(g.a.shape.back()), least = tuned_gflop();
  if (least > 0 && gflop > least && !q.recording && !g.accumulate) ladder.tune(q);
  ladder.run(q, g, 0);
}
#endif

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

#ifdef HALFSTEP_NO_CUBLASLT
void gemm(const Queue& q, const GemmArgs& g) { plain_gemm(q, g); }
std::string describe_blas() { return "plain products"; }
void set_gemm_tuning(double) {}
#else
namespace {
bool plain_only() {
  static const char* const value = std::getenv("HALFSTEP_CUDA_BLAS");
  static const bool plain = value && value == std::string_view("plain");
  return plain;
}
}  // namespace

void gemm(const Queue& q, const GemmArgs& g) {
  const bool library = !plain_only() && is_floating(g.a.dtype) && g.c.numel() > 0 && g.a.shape.back() > 0;
  library ? library_gemm(q, g) : plain_gemm(q, g);
}
std::string describe_blas() { return plain_only() ? "plain products" : cublaslt_version(); }
void set_gemm_tuning(double gflop) { tuned_gflop() = gflop; }
#endif

AuxLayout activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype) {
  if (activation == Activation::relu) return {{rows, round_up(columns, 128) / 8}, DType::u8};
  if (activation == Activation::gelu) return {{rows, round_up(columns, 8)}, dtype};
  return {};
}

}  // namespace halfstep::cuda
