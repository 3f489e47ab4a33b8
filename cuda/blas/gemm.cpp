// SPDX-License-Identifier: Apache-2.0
// Splits a product with its extras into calls: as much as one epilogue can do, and kernels for the rest.
#include "cuda/blas/gemm.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "cuda/blas/fusion.h"
#include "cuda/blas/padding.h"
#include "cuda/blas/product_stats.h"
#include "cuda/blas/tuning_cache.h"
#include "cuda/runtime.h"
#include "framework/base/check.h"
#include "framework/base/log.h"

#ifndef HALFSTEP_NO_CUBLASLT  // an emulated build without the library's header
#include "cuda/blas/cublaslt.h"
#include "cuda/blas/matmul.h"
#include "framework/base/number_text.h"
#endif

namespace halfstep::cuda {
namespace {

// ---- the parts of a request

// Returns c as a matrix, with the rows of a batch below each other.
TensorView flat(const TensorView& c) {
  if (c.shape.size() == 2) return c;
  const int64_t columns = c.shape.back(), rows = columns > 0 ? c.numel() / columns : 0;
  return {c.data, c.dtype, {rows, columns}, {columns, 1}};
}

// Returns the product alone for separate activations, which start from z = a b + bias, rounded once.
GemmArgs with_bias(const GemmArgs& g) { return {.a = g.a, .b = g.b, .c = g.c, .bias = g.bias, .accumulate = g.accumulate}; }

// Computes out[j] = sum of a matrix over its first dimension.
void sum_rows(const Queue& q, const TensorView& x, const TensorView& out) { reduce(q, Reduce::sum, x, as_row(out)); }

// Returns whether the derivative of a ReLU reads the layer's output instead of a mask.
bool reads_output(const GemmArgs& g) { return g.derivative && g.activation == Activation::relu && g.aux.dtype != DType::u8; }

// Computes the part of `wanted` that `done`, whose result is in c, lacks.
void finish(const Queue& q, const GemmArgs& wanted, const GemmArgs& done) {
  const TensorView c = flat(wanted.c);
  bool sums = wanted.column_sum && !done.column_sum;  // whether they are missing
  if (wanted.derivative && !done.derivative) {
    const bool gelu = wanted.activation == Activation::gelu;
    if (sums && (gelu || reads_output(wanted))) {
      const TensorView saved{wanted.aux.data, wanted.aux.dtype, c.shape, wanted.aux.strides};  // GELU's rows may be longer
      unary_summed_backward(q, gelu ? Unary::gelu_tanh : Unary::relu, c, saved, c, wanted.column_sum);
      sums = false;
    } else if (reads_output(wanted)) {
      unary_backward(q, Unary::relu, c, wanted.aux, c);
    } else {
      activation_derivative(q, c, wanted.activation, wanted.aux, c);
    }
  } else if (wanted.activation == Activation::relu && done.activation == Activation::relu && wanted.aux && !done.aux) {
    bias_activation(q, c, {}, Activation::relu, wanted.aux, {});  // only its mask
  } else if (is_floating(c.dtype)) {
    const bool bias = wanted.bias && !done.bias, activation = wanted.activation != done.activation;
    if (bias || activation) bias_activation(q, c, bias ? wanted.bias : TensorView{}, wanted.activation, wanted.aux, c);
  } else if (wanted.activation == Activation::relu) {
    unary(q, Unary::relu, c, c);
  }
  if (sums) sum_rows(q, c, wanted.column_sum);
  if (wanted.a_row_sum && !done.a_row_sum) {
    const TensorView& a = wanted.a;
    sum_rows(q, {a.data, a.dtype, {a.shape[1], a.shape[0]}, {a.strides[1], a.strides[0]}}, wanted.a_row_sum);
  }
  if (wanted.b_column_sum && !done.b_column_sum) sum_rows(q, wanted.b, wanted.b_column_sum);
}

void plain_gemm(const Queue& q, const GemmArgs& g) {
  if (g.c.is_contiguous()) {
    plain_product(q, g.a, g.b, g.bias, g.c, g.accumulate);
  } else {
    const Workspace work(Device::cuda, size_t(g.c.numel()) * size_of(g.c.dtype));
    const TensorView dense{work.data(), g.c.dtype, g.c.shape, contiguous_strides(g.c.shape)};
    if (g.accumulate) copy(q, g.c, dense);
    plain_product(q, g.a, g.b, g.bias, dense, g.accumulate);
    copy(q, dense, g.c);
  }
  finish(q, g, with_bias(g));
}

// Stores the rung by which a kind of product now runs in its record, and logs it.
void set_rung(ProductRecord& record, int rung, const char* name, const std::string& status) {
  ProductReport& r = record.report;
  record.rung = rung;
  r.rung = name;
  r.status = status;
  logging::debug("[products] " + std::string(halfstep::name(r.in)) + " [" + std::to_string(r.m) + ", " + std::to_string(r.k) +
                 "] x [" + std::to_string(r.k) + ", " + std::to_string(r.n) + "]" +
                 (r.batch > 1 ? " x " + std::to_string(r.batch) : "") + " -> " + std::string(halfstep::name(r.out)) + ", " +
                 r.epilogue + ": " + r.rung + ", algorithm " + std::to_string(r.algorithm) + " of " + std::to_string(r.candidates) +
                 ", workspace " + std::to_string(r.workspace) + " bytes (" + r.status + ")");
}

#ifndef HALFSTEP_NO_CUBLASLT
GemmArgs bare(const GemmArgs& g) { return {.a = g.a, .b = g.b, .c = g.c, .accumulate = g.accumulate}; }
bool is_bare(const GemmArgs& g) {
  return !g.bias && g.activation == Activation::none && !g.column_sum && !g.a_row_sum && !g.b_column_sum;
}

// Returns the number in an environment variable, or 0.
double number_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? number_before(value).value_or(0) : 0;
}

// Returns the variable that holds the argument of set_gemm_tuning().
std::atomic<double>& tuned_gflop() {
  static std::atomic<double> gflop{number_in_environment("HALFSTEP_TUNE")};
  return gflop;
}

// Returns the part of g that one epilogue can do: its vector is packed and of c's dtype.
GemmArgs one_epilogue(const GemmArgs& g) {
  const auto fits = [&](const TensorView& v) { return !v || (v.dtype == g.c.dtype && (v.shape[0] == 1 || v.strides[0] == 1)); };
  GemmArgs part = bare(g);
  if ((g.accumulate && g.activation != Activation::none) || reads_output(g)) return part;
  if (g.activation == Activation::gelu && !gelu_is_exact_enough(g.c.dtype)) {
    if (fits(g.bias)) part.bias = g.bias;
  } else if (fits(g.bias)) {
    part.bias = g.bias;
    part.activation = g.activation;
    part.aux = g.aux;
    part.derivative = g.derivative;
    if (g.derivative && fits(g.column_sum)) part.column_sum = g.column_sum;
  }
  if (is_bare(part) && fits(g.a_row_sum)) part.a_row_sum = g.a_row_sum;
  if (is_bare(part) && fits(g.b_column_sum)) part.b_column_sum = g.b_column_sum;
  return part;
}

// Returns what the speed of products depends on besides their kind; tuning results are stored under it.
const std::string& machine() {
  static const std::string text = describe_device() + ", " + cublaslt_version();
  return text;
}

// The rungs for g, from the most fused to the bare product. Each leaves the rest to finish().
struct Ladder {
  struct Rung {
    const char* name;
    GemmArgs part;
    bool by_default;  // whether the table of fusion.h allows it
  };
  Rung rungs[5];
  int count = 0;

  explicit Ladder(const GemmArgs& g) {
    const GemmArgs part = one_epilogue(g);
    const Fusion fusion = default_fusion(g.a.dtype, capability());
    const bool gelu = part.activation == Activation::gelu && !part.derivative;
    const bool by_default = (fusion.derivative || !part.derivative) && (fusion.row_sum || !(part.a_row_sum || part.b_column_sum)) &&
                            (fusion.gelu || !gelu);
    if (!is_bare(part)) add(part.activation == g.activation ? "fused" : "bias", part, by_default);
    if (part.activation == Activation::relu && part.aux && !part.derivative) {  // the mask can be computed from the result
      GemmArgs unmasked = part;
      unmasked.aux = {};
      add("unfused_mask", unmasked, true);
    }
    if (part.column_sum) {  // a derivative may be fused although its sum is not
      GemmArgs unsummed = part;
      unsummed.column_sum = {};
      add("unfused_sum", unsummed, fusion.derivative);
    }
    if (part.bias && part.activation != Activation::none) add("bias", with_bias(part), true);
    add("bare", bare(g), true);
  }
  void add(const char* name, const GemmArgs& part, bool by_default) { rungs[count++] = {name, part, by_default}; }

  // Returns whether to try a rung, given the measured times.
  bool is_tried(int i, const std::optional<int>& best) const { return best ? i >= *best : rungs[i].by_default; }

  // Runs g by rung i alone; returns false if the library refuses.
  bool run_rung(const Queue& q, const GemmArgs& g, int i) const {
    if (!matmul(q, rungs[i].part)) return false;
    finish(q, g, rungs[i].part);
    return true;
  }

  // Runs g and returns its rung; `count` means none, and nothing was done.
  int run(const Queue& q, const GemmArgs& g, const std::optional<int>& best) const {
    for (int i = 0; i < count; ++i) {
      if (is_tried(i, best) && run_rung(q, g, i)) return i;
    }
    return count;
  }

  // Stores rung `taken`, and why those before it were passed over, in the record. Warns once if the library has no code (`count`).
  void store_outcome(const Queue& q, ProductRecord& record, int taken) const {
    ProductReport& r = record.report;
    std::string passed_over;
    for (int i = 0; i < taken; ++i) {
      const std::string why = is_tried(i, record.best)             ? matmul_facts(q, rungs[i].part).status
                              : record.best && rungs[i].by_default ? "slower"
                              : record.best                        ? "slower, and not by default"
                                                                   : "not by default";
      passed_over += rungs[i].name + (": " + why) + "; ";
    }
    const MatmulFacts facts = taken < count ? matmul_facts(q, rungs[taken].part) : MatmulFacts{};
    r.top = rungs[0].name;
    r.candidates = facts.candidates;
    r.algorithm = facts.algorithm;
    r.workspace = facts.workspace;
    r.fell_back = taken == count;
    const char* const name = taken < count ? rungs[taken].name : "plain";
    const std::string answer = taken < count ? facts.status : "no way of the library is left";
    set_rung(record, taken, name, passed_over.empty() ? answer : passed_over + name + ": " + answer);
    static std::atomic<bool> warned{false};
    if (r.fell_back && !warned.exchange(true)) {
      logging::warn("[products] " + cublaslt_version() + " has no code for a product of " + std::string(halfstep::name(r.in)) +
                    " [" + std::to_string(r.m) + ", " + std::to_string(r.k) + "] x [" + std::to_string(r.k) + ", " +
                    std::to_string(r.n) + "], which runs slowly on a kernel of halfstep's own (" + r.status +
                    "); others are not warned of again");
    }
  }

  // Finds the fastest rung, by measuring or in the file of an earlier run.
  void tune(const Queue& q, const GemmArgs& g, const ProductKey& key, ProductRecord& record) const {
    if (const auto stored = recall_tuning(machine(), key.text())) {
      for (int i = 0; i < count; ++i) {
        if (rungs[i].name != stored->rung || !choose_candidate(q, rungs[i].part, stored->candidate, stored->algorithm)) continue;
        record.best = i;
        record.report.tuned = true;
        record.report.ms = stored->ms;
        return;
      }
    }
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < count; ++i) {
      tune_matmul(q, rungs[i].part);
      if (!run_rung(q, g, i)) continue;
      const double ms = time_of(q, [&] { run_rung(q, g, i); });
      if (ms >= least) continue;
      least = ms;
      record.best = i;
    }
    if (!record.best) return;
    record.report.tuned = true;
    record.report.ms = least;
    const Rung& rung = rungs[*record.best];
    const MatmulFacts facts = matmul_facts(q, rung.part);
    remember_tuning(machine(), key.text(), {rung.name, facts.candidate, facts.algorithm, least});
  }
};

void library_gemm(const Queue& q, const GemmArgs& g) {
  const ProductKey key(g);
  ProductRecord& record = product_record(g, key);
  const Ladder ladder(g);
  const double gflop = 2e-9 * double(g.c.numel()) * double(g.a.shape.back()), least = tuned_gflop();
  if (least > 0 && gflop > least && !q.recording && !g.accumulate && !std::exchange(record.considered, true))
    ladder.tune(q, g, key, record);
  const int taken = ladder.run(q, g, record.best);
  if (taken == ladder.count) plain_gemm(q, g);
  if (taken != record.rung) ladder.store_outcome(q, record, taken);
  ++record.report.calls;
}

void aligned_gemm(const Queue& q, const GemmArgs& g);

// Computes a product in two parts, which if they are sums add in float32, and then what the parts leave.
void cut_gemm(const Queue& q, const GemmArgs& g, const ProductCut& cut) {
  GemmArgs inner = cut.extent == ProductCut::k ? bare(g) : with_bias(g);
  if (cut.extent == ProductCut::m) inner.a_row_sum = g.a_row_sum;
  if (cut.extent == ProductCut::n) inner.b_column_sum = g.b_column_sum;
  const bool narrow = cut.extent == ProductCut::k && g.c.dtype != DType::f32;
  std::optional<Workspace> sums;
  try {
    if (narrow) sums.emplace(Device::cuda, size_t(g.c.numel()) * sizeof(float));
  } catch (const MemoryError&) { return library_gemm(q, g); }
  if (narrow) inner.c = {sums->data(), DType::f32, g.c.shape, contiguous_strides(g.c.shape)};
  aligned_gemm(q, before(inner, cut));
  library_gemm(q, behind(inner, cut));
  if (narrow) copy(q, inner.c, g.c);
  finish(q, g, inner);
}

// Cuts or pads rows if that pays and there is memory for it. If c is padded, the extras are computed after it was copied back.
void aligned_gemm(const Queue& q, const GemmArgs& g) {
  if (const ProductCut cut = cut_of(g); cut.extent != ProductCut::none) return cut_gemm(q, g, cut);
  const Padding padding = padding_of(g);
  std::optional<PaddedMatrix> a, b, c;
  GemmArgs inner = padding.c ? bare(g) : g;
  try {
    if (padding.a) inner.a = a.emplace(q, g.a, padding.m, padding.k, true).view();
    if (padding.b) inner.b = b.emplace(q, g.b, padding.k, padding.n, true).view();
    if (padding.c) inner.c = c.emplace(q, g.c, padding.m, padding.n, false).view();
  } catch (const MemoryError&) { return library_gemm(q, g); }
  library_gemm(q, inner);
  if (!padding.c) return;
  copy(q, c->given_part(), g.c);
  finish(q, g, inner);
}
#endif

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Computes products that the library does not support (integers), or all if it is disabled.
void plain_by_choice(const Queue& q, const GemmArgs& g) {
  if (g.c.numel() > 0 && g.a.shape.back() > 0) {
    ProductRecord& record = product_record(g, ProductKey(g));
    record.report.top = "plain";
    if (record.rung != 0) set_rung(record, 0, "plain", is_floating(g.a.dtype) ? "the library is left out" : "integers");
    ++record.report.calls;
  }
  plain_gemm(q, g);
}

#ifndef HALFSTEP_NO_CUBLASLT
bool plain_only() {
  static const char* const value = std::getenv("HALFSTEP_CUDA_BLAS");
  static const bool plain = value && value == std::string_view("plain");
  return plain;
}

// Throws for bf16 before Ampere, whose tensor cores lack it.
void check_bf16(const GemmArgs& g) {
  check<DeviceError>(g.a.dtype != DType::bf16 || capability() >= 80, "products",
                     "products of bfloat16 need compute capability 8.0 "
                     "(Ampere) or later, and ",
                     device_name(), " has ", capability() / 10, '.', capability() % 10,
                     Help{"train in float16 with a GradScaler (\"amp\": {\"dtype\": \"float16\"}), or in float32; "
                          "HALFSTEP_CUDA_BLAS=plain multiplies bfloat16 without the library, slowly"});
}
#endif

}  // namespace

#ifdef HALFSTEP_NO_CUBLASLT
void gemm(const Queue& q, const GemmArgs& g) { plain_by_choice(q, g); }
int64_t product_row(int64_t, int64_t n, int64_t, DType) { return n; }
bool wants_relu_mask(DType) { return true; }
std::string describe_blas() { return "plain products"; }
void set_gemm_tuning(double) {}
#else
void gemm(const Queue& q, const GemmArgs& g) {
  const bool floating = is_floating(g.a.dtype), empty = g.c.numel() == 0 || g.a.shape.back() == 0;
  if (plain_only() || !floating || empty) return plain_by_choice(q, g);
  check_bf16(g);
  aligned_gemm(q, g);
}
int64_t product_row(int64_t m, int64_t n, int64_t k, DType dtype) { return plain_only() ? n : aligned_row(m, n, k, dtype); }
std::string describe_blas() { return plain_only() ? "plain products" : cublaslt_version(); }
bool wants_relu_mask(DType dtype) {
  return plain_only() || !is_half(dtype) || default_fusion(dtype, capability()).derivative || tuned_gflop() > 0;
}
void set_gemm_tuning(double gflop) { tuned_gflop() = gflop; }
#endif

std::vector<ProductReport> product_reports() { return take_product_reports(); }

AuxLayout activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype) {
  if (activation == Activation::relu) return {{rows, round_up(columns, 128) / 8}, DType::u8};
  if (activation == Activation::gelu) return {{rows, round_up(columns, 8)}, dtype};
  return {};
}

}  // namespace halfstep::cuda
