// SPDX-License-Identifier: Apache-2.0
// A library with the functions of cuBLASLt that cuda/blas uses, on the emulator's memory and streams. It takes what cublasLt.h
// says that the real one takes. Where the real one would refuse with a status and the caller would silently take another way,
// or would compute garbage, it ends the program with the broken rule.
//   HALFSTEP_FAKE_REFUSE=0x3fe   bits of cublasLtEpilogue_t: epilogues with any of them are not supported (0x3fe: all but none)
//   HALFSTEP_FAKE_SLOW=0x218     epilogues with any of these bits take some milliseconds (0x1: products without an epilogue)
//   HALFSTEP_FAKE_MASK=set       ReLU's mask is set where z is 0, as by some kernels of cuBLASLt
//   HALFSTEP_FAKE_RELU=hide      ReLU makes 0 of NaN
//   HALFSTEP_FAKE_BLOCK=8        so many products of 16-bit numbers or TF32 are added at once and cut off, as tensor cores do
//   HALFSTEP_FAKE_SPLITS=3       sums are made of so many parts, as by a library that splits k
//   HALFSTEP_FAKE_FAIL=n         the first n of the candidates that it proposes are refused when they are run
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string_view>

#include "tests/emulators/fake_cublaslt/product.h"
#include "tests/emulators/source/hooks.h"
#include "tests/emulators/source/runtime.h"

using namespace emu;

namespace {

constexpr int kCandidates = 4;
constexpr int kBroken = 1;    // this one is proposed with a state that says not to use it
constexpr int kFirstId = 60;  // of the algorithms
constexpr size_t kWorkspaceUsed = 4096;

struct Preference {
  uint64_t workspace = 0, implementations = ~uint64_t(0);
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t a_align = 256, b_align = 256, c_align = 256, d_align = 256;
};
// In a cublasLtMatmulAlgo_t: which candidate, and the product that it was proposed for.
struct Algorithm {
  uint64_t candidate, problem, workspace;
  uint32_t a_align, b_align, c_align, d_align;
  uint64_t vector_align, aux_align;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

int handle_of_all;

FakeOperation& operation_of(cublasLtMatmulDesc_t d) { return *reinterpret_cast<FakeOperation*>(d); }
FakeLayout& layout_of(cublasLtMatrixLayout_t l) { return *reinterpret_cast<FakeLayout*>(l); }
Preference& preference_of(cublasLtMatmulPreference_t p) { return *reinterpret_cast<Preference*>(p); }

unsigned long setting(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::strtoul(text, nullptr, 0) : 0;
}

template <class T>
cublasStatus_t put(T& to, const void* value, size_t bytes) {
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

uint64_t alignment(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return address ? uint64_t(1) << std::min(8, std::countr_zero(address)) : 256;
}

// All that a choice of code may depend on, apart from alignments.
uint64_t fingerprint(const FakeProduct& p) {
  uint64_t h = 0;
  const auto add = [&](auto... values) { ((h = std::rotl((h ^ uint64_t(values)) * 0x9E3779B97F4A7C15u, 29)), ...); };
  add(p.op.compute, p.op.scale, p.op.transposed_a, p.op.transposed_b, p.op.epilogue, p.op.aux_ld);
  for (const FakeLayout& l : {p.a, p.b, p.c, p.d}) add(l.type, l.rows, l.columns, l.ld, l.batch, l.stride);
  return h;
}

bool is_epilogue(uint32_t e) {
  constexpr uint32_t all[] = {
      CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_RELU,   CUBLASLT_EPILOGUE_RELU_BIAS,
      CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_GELU,   CUBLASLT_EPILOGUE_GELU_BIAS,
      CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU,  CUBLASLT_EPILOGUE_DRELU_BGRAD,
      CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_DGELU_BGRAD,   CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB};
  return std::find(std::begin(all), std::end(all), e) != std::end(all);
}

// Null, or the first rule that the request breaks.
const char* broken_type_rule(const FakeProduct& p) {
  const cudaDataType_t in = p.a.type, out = p.d.type;
  const bool half = in == CUDA_R_16F || in == CUDA_R_16BF, wide = in == CUDA_R_64F;
  if (p.b.type != in) return "A and B are of one type";
  if (p.c.type != out) return "C and D are of one type";
  if (!half && !wide && in != CUDA_R_32F) return "A is f16, bf16, f32 or f64";
  if (out != in && !(half && out == CUDA_R_32F)) return "D is of A's type, or f32 where A is of a 16-bit type";
  if (p.op.scale != (wide ? CUDA_R_64F : CUDA_R_32F)) return "alpha and beta are f32, f64 for f64";
  if (wide != (p.op.compute == CUBLAS_COMPUTE_64F)) return "f64 is computed in f64, and nothing else is";
  if (!wide && p.op.compute != CUBLAS_COMPUTE_32F && !(p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && in == CUDA_R_32F))
    return "sums are kept in f32, and TF32 is for f32";
  return nullptr;
}
const char* broken_shape_rule(const FakeProduct& p) {
  const auto is = [](const FakeLayout& l, bool transposed, int64_t rows, int64_t columns) {
    return l.rows == (transposed ? columns : rows) && l.columns == (transposed ? rows : columns);
  };
  if (!is(p.a, p.op.transposed_a, p.m(), p.k()) || !is(p.b, p.op.transposed_b, p.k(), p.n()) || !is(p.c, false, p.m(), p.n()))
    return "the shapes do not fit each other";
  for (const FakeLayout& l : {p.a, p.b, p.c}) {
    if (l.batch != p.d.batch) return "batch counts are equal";
  }
  if (p.d.batch > 1 && p.d.stride < p.d.ld * p.d.columns) return "the matrices of D lie apart from each other";
  return nullptr;
}
const char* broken_epilogue_rule(const FakeProduct& p) {
  const FakeOperation& op = p.op;
  if (!is_epilogue(op.epilogue)) return "no such epilogue";
  if (op.has(kBias | kBiasGradient | kSumA | kSumB) != (op.vector != nullptr))
    return "the bias pointer is set for epilogues with a bias or its gradient, and for no other";
  if (op.has(kAux) != (op.aux != nullptr)) return "the auxiliary pointer is set for epilogues that use it, and for no other";
  if (op.has(kAux) && (op.aux_ld < p.m() || op.aux_ld % (op.has(kRelu | kReluGradient) ? 128 : 8)))
    return "the auxiliary buffer's leading dimension holds D's rows, in multiples of 128 bits (ReLU) or 8 elements (GELU)";
  if (p.d.batch > 1 && op.has(kAux | kBiasGradient | kSumA | kSumB)) return "one auxiliary buffer or vector for a whole batch";
  if (alignment(op.vector) < uint64_t(size_of(p.d.type))) return "the bias vector is aligned for elements of D's type";
  if (alignment(op.aux) < (op.has(kRelu | kReluGradient) ? 1 : uint64_t(size_of(p.d.type))))
    return "the auxiliary buffer is aligned";
  return nullptr;
}
void check_rules(const char* call, const FakeProduct& p) {
  const char* broken = broken_type_rule(p);
  if (!broken) broken = broken_shape_rule(p);
  if (!broken) broken = broken_epilogue_rule(p);
  if (broken) fail("%s: %s (epilogue %u, m %ld, n %ld, k %ld)", call, broken, p.op.epilogue, p.m(), p.n(), p.k());
}

void check_alignment(const char* what, const void* p, uint64_t promised) {
  if (alignment(p) < promised) fail("cublasLtMatmul: %s is at %p, but an alignment of %lu was promised", what, p, promised);
}

// Memory on the device, of live allocations; outputs overlap no inputs.
void check_memory(const FakeProduct& p) {
  const auto bytes = [](const FakeLayout& l) { return size_t(l.elements() * size_of(l.type)); };
  struct Range {
    const char *what, *at;
    size_t bytes;
    bool written;
  };
  const FakeOperation& op = p.op;
  const auto range = [](const char* what, const void* at, size_t size, bool written) {
    return Range{what, static_cast<const char*>(at), at ? size : 0, written};
  };
  const Range all[] = {
      range("cublasLtMatmul: A", p.a_data, bytes(p.a), false), range("cublasLtMatmul: B", p.b_data, bytes(p.b), false),
      range("cublasLtMatmul: D", p.d_data, bytes(p.d), true),
      range("cublasLtMatmul: the bias vector", op.vector, size_t(p.vector_elements() * size_of(p.d.type)), !op.has(kBias)),
      range("cublasLtMatmul: the auxiliary buffer", op.aux, p.aux_bytes(), op.has(kRelu | kGelu))};
  for (const Range& r : all) {
    if (!r.bytes) continue;
    check_device_memory(r.what, r.at, r.bytes);
    for (const Range& s : all) {
      if (&r != &s && r.written && s.bytes && r.at < s.at + s.bytes && s.at < r.at + r.bytes)
        fail("%s, which is written, overlaps %s", r.what, s.what);
    }
  }
  if (p.beta != 0) check_device_memory("cublasLtMatmul: C", p.c_data, bytes(p.c));
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return CUBLAS_VER_MAJOR * 10000 + 9900; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&handle_of_all);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute, cudaDataType_t scale) {
  *d = reinterpret_cast<cublasLtMatmulDesc_t>(new FakeOperation{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete &operation_of(d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  FakeOperation& op = operation_of(d);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return put(op.transposed_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return put(op.transposed_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return put(op.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return put(op.vector, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return put(op.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return put(op.aux_ld, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType_t type, uint64_t rows, uint64_t columns,
                                          int64_t ld) {
  if (ld < int64_t(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *l = reinterpret_cast<cublasLtMatrixLayout_t>(new FakeLayout{type, int64_t(rows), int64_t(columns), ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete &layout_of(l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return put(layout_of(l).batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return put(layout_of(l).stride, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete &preference_of(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  Preference& preference = preference_of(p);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return put(preference.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return put(preference.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK: return put(preference.implementations, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return put(preference.a_align, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return put(preference.b_align, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return put(preference.c_align, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return put(preference.d_align, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wanted, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  const FakeProduct p{operation_of(operation), layout_of(a), layout_of(b), layout_of(c), layout_of(d)};
  const Preference& preference = preference_of(wanted);
  check_rules("cublasLtMatmulAlgoGetHeuristic", p);
  if (p.a.type == CUDA_R_16F && preference.implementations & CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F)
    fail("cublasLtMatmulAlgoGetHeuristic: sums may be kept in f16");
  if (preference.reductions & (CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE | CUBLASLT_REDUCTION_SCHEME_INPLACE))
    fail("cublasLtMatmulAlgoGetHeuristic: parts of sums may be added in D's type");
  *found = 0;
  if (p.op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && p.op.has(uint32_t(setting("HALFSTEP_FAKE_REFUSE"))))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < std::min(requested, kCandidates); ++i) {
    cublasLtMatmulHeuristicResult_t& r = results[(*found)++];
    std::memset(&r, 0xFF, sizeof r);
    r.state = i == kBroken ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    if (i == kBroken) continue;
    r.workspaceSize = i == 0 ? std::min<size_t>(kWorkspaceUsed, preference.workspace) : 0;
    r.wavesCount = 1;
    const Algorithm algorithm{uint64_t(i),        fingerprint(p),         r.workspaceSize,
                              preference.a_align, preference.b_align,     preference.c_align,
                              preference.d_align, alignment(p.op.vector), alignment(p.op.aux)};
    std::memcpy(&r.algo, &algorithm, sizeof algorithm);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value, size_t bytes,
                                                    size_t* written) {
  if (attribute != CUBLASLT_ALGO_CONFIG_ID || bytes < sizeof(int32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof algorithm);
  const int32_t id = kFirstId + int32_t(algorithm.candidate);
  std::memcpy(value, &id, sizeof id);
  if (written) *written = sizeof id;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a_data,
                              cublasLtMatrixLayout_t a, const void* b_data, cublasLtMatrixLayout_t b, const void* beta,
                              const void* c_data, cublasLtMatrixLayout_t c, void* d_data, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (reinterpret_cast<int*>(handle) != &handle_of_all) return CUBLAS_STATUS_NOT_INITIALIZED;
  FakeProduct p{operation_of(operation), layout_of(a), layout_of(b), layout_of(c), layout_of(d), a_data, b_data, c_data, d_data};
  check_rules("cublasLtMatmul", p);
  const auto scalar = [&](const void* x) {
    return p.op.scale == CUDA_R_64F ? *static_cast<const double*>(x) : double(*static_cast<const float*>(x));
  };
  p.alpha = scalar(alpha);
  p.beta = scalar(beta);
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof algorithm);
  if (algorithm.candidate >= kCandidates || algorithm.problem != fingerprint(p))
    fail("cublasLtMatmul: the algorithm was not proposed for this product");
  if (workspace_bytes < algorithm.workspace) fail("cublasLtMatmul: a workspace of %zu bytes is too small", workspace_bytes);
  check_alignment("A", a_data, algorithm.a_align);
  check_alignment("B", b_data, algorithm.b_align);
  check_alignment("C", c_data, algorithm.c_align);
  check_alignment("D", d_data, algorithm.d_align);
  check_alignment("the bias vector", p.op.vector, algorithm.vector_align);
  check_alignment("the auxiliary buffer", p.op.aux, algorithm.aux_align);
  if (workspace_bytes) check_alignment("the workspace", workspace, 256);
  if (algorithm.candidate < setting("HALFSTEP_FAKE_FAIL")) return CUBLAS_STATUS_NOT_SUPPORTED;
  const char* const mask = std::getenv("HALFSTEP_FAKE_MASK");
  p.mask_at_zero = mask && std::string_view(mask) == "set";
  const char* const relu = std::getenv("HALFSTEP_FAKE_RELU");
  p.hides_nan = relu && std::string_view(relu) == "hide";
  p.block = int(std::max(1ul, setting("HALFSTEP_FAKE_BLOCK")));
  p.splits = int(std::max(1ul, setting("HALFSTEP_FAKE_SPLITS")));
  const bool slow = p.op.has(uint32_t(setting("HALFSTEP_FAKE_SLOW")));
  const auto work = [p, slow, workspace, used = algorithm.workspace] {
    if (slow) spend(3000);
    check_memory(p);
    if (used) check_device_memory("cublasLtMatmul: the workspace", workspace, used);
    const OpenDeviceMemory open;
    if (counts_only) {
      if (p.op.has(kRelu)) compute_ends(p);  // which the caller looks at before it trusts a ReLU
      return;
    }
    if (used) std::memset(workspace, 0xFF, used);
    compute(p);
  };
  const cudaError_t error = submit(stream, {.work = work, .what = "product"});
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
