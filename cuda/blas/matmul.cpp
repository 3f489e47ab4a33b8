// SPDX-License-Identifier: Apache-2.0
// Plans: the library's descriptors and its choice of code for each kind of product, made once and kept.
#include "cuda/blas/matmul.h"

#include <cmath>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cuda/launches.h"
#include "cuda/runtime.h"
#include "framework/base/check.h"
#include "framework/tensor/memory.h"

namespace halfstep::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t(32) << 20;  // as NVIDIA recommends for sm_90
constexpr size_t kPlans = 4096;                       // most kept plans; more kinds restart the cache
constexpr int kCandidates = 8;                        // most candidates of a plan
constexpr int kTimings = 5;                           // calls of a measurement

static_assert(sizeof(MatmulKey) == 23 * sizeof(int64_t), "hashed as words: no padding");
struct MatmulKeyHash {
  size_t operator()(const MatmulKey& key) const {
    int64_t words[sizeof(MatmulKey) / sizeof(int64_t)];
    std::memcpy(words, &key, sizeof key);
    uint64_t h = 0;
    for (int64_t w : words) h = (h ^ uint64_t(w)) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return size_t(h);
  }
};

struct Plan {
  Plan(const CublasLt& lt, const MatmulKey& key, const MatmulPointers& pointers) : descriptors(lt, key, pointers) {}

  MatmulDescriptors descriptors;
  std::vector<cublasLtMatmulHeuristicResult_t> candidates;  // empty: the library has no code
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;            // of the heuristic, then of the last refused candidate
  size_t chosen = 0;
  size_t tested_relu = size_t(-1);   // index of the candidate whose ReLU was tested
  const char* relu_fault = nullptr;  // how it differs from ours
  bool tuned = false;

  bool exhausted() const { return chosen >= candidates.size(); }
};

bool applies_relu(const GemmArgs& g) { return !g.derivative && g.activation == Activation::relu; }

bool is_nan(DType t, const char* element) {
  uint64_t bits = 0;
  std::memcpy(&bits, element, size_of(t));
  switch (t) {
    case DType::f16: return (bits & 0x7fff) > 0x7c00;
    case DType::bf16: return (bits & 0x7fff) > 0x7f80;
    case DType::f32: return (bits & 0x7fffffff) > 0x7f800000;
    default: return (bits & ~(uint64_t(1) << 63)) > uint64_t(0x7ff) << 52;
  }
}

// Return the bytes from a matrix's first element to the first of its last row, and to its last element.
size_t offset_of_last_row(const TensorView& v) {
  int64_t elements = 0;
  for (int d = 0; d + 1 < v.shape.size(); ++d) elements += (v.shape[d] - 1) * v.strides[d];
  return size_t(elements) * size_of(v.dtype);
}
size_t offset_of_last(const TensorView& v) {
  return offset_of_last_row(v) + size_t((v.shape.back() - 1) * v.strides[v.shape.size() - 1]) * size_of(v.dtype);
}

class Library {
 public:
  explicit Library(const CublasLt& functions) : lt(functions) { check_cublaslt(lt.cublasLtCreate(&handle_), "cublasLtCreate"); }

  // Returns the plan, or null if the library cannot compute it. Plans of kinds without code are cached too.
  Plan* plan(const Queue& q, const GemmArgs& g) {
    const std::optional<MatmulKey> key = matmul_key(g, workspace_bytes(q));
    if (!key) return nullptr;
    const MatmulPointers pointers = matmul_pointers(g);
    if (const auto found = plans_.find(*key); found != plans_.end()) {
      found->second->descriptors.point_to(pointers);
      return found->second.get();
    }
    if (plans_.size() >= kPlans) plans_.clear();
    return (plans_[*key] = make_plan(*key, pointers)).get();
  }

  cublasStatus_t run(const Queue& q, const Plan& plan, const cublasLtMatmulHeuristicResult_t& candidate, const GemmArgs& g) const {
    const double wide[2] = {1, g.accumulate ? 1.0 : 0.0};
    const float narrow[2] = {1, g.accumulate ? 1.0f : 0.0f};
    const bool is_wide = g.a.dtype == DType::f64;
    const void* alpha = is_wide ? static_cast<const void*>(wide) : narrow;
    const void* beta = is_wide ? static_cast<const void*>(wide + 1) : narrow + 1;
    const MatmulDescriptors& d = plan.descriptors;
    return lt.cublasLtMatmul(handle_, d.operation, alpha, g.b.data, d.a, g.a.data, d.b, beta, g.c.data, d.d, g.c.data, d.d,
                             &candidate.algo, workspace_, candidate.workspaceSize, q.stream);
  }

  // Returns whether the chosen candidate's ReLU works like PyTorch's and ours: NaN stays NaN, and the mask of elements that pass
  // the gradient is 0 where z is 0. Some of the library's kernels do not. Tests each candidate once, by runs on operands of zeros,
  // without and with a NaN in the first and the last row, whose results are overwritten later. The caller's operands would not do:
  // infinity times 0 gives NaN, and the library need not read operands whose factor is 0. Cannot test in a recording, or without
  // memory for the zeros. Stores a refusal in `status`.
  bool relu_is_ours(const Queue& q, Plan& plan, const GemmArgs& g, cublasStatus_t& status) const {
    status = CUBLAS_STATUS_SUCCESS;
    if (plan.tested_relu == plan.chosen) return !plan.relu_fault;
    if (q.recording) return false;
    const std::optional<Zeros> zeros = zeros_like(q, g);
    if (!zeros) return false;
    const char* fault = nullptr;
    if (g.aux) {
      const std::string mask = first_and_last_row(q, plan, g, *zeros, g.aux.data, 1, status);
      if (status != CUBLAS_STATUS_SUCCESS) return false;
      const size_t columns = size_t(g.c.shape.back());
      for (size_t i = 0; i < 2 * columns; ++i) {
        const size_t column = i % columns;
        if (mask[i / columns * (mask.size() / 2) + column / 8] >> column % 8 & 1) fault = "mask is set at 0";
      }
    }
    for (const size_t at : {size_t(0), offset_of_last_row(g.a)}) {
      char* const element = static_cast<char*>(zeros->operands.a.data) + at;
      check_cuda(cudaMemsetAsync(element, 0xFF, size_of(g.a.dtype), q.stream), "cudaMemsetAsync");  // NaN in every dtype
    }
    const std::string y = first_and_last_row(q, plan, g, *zeros, g.c.data, size_of(g.c.dtype) * 8, status);
    if (status != CUBLAS_STATUS_SUCCESS) return false;
    for (size_t i = 0; i < y.size(); i += size_of(g.c.dtype)) {
      if (!is_nan(g.c.dtype, y.data() + i)) fault = "ReLU makes a number of NaN";
    }
    plan.tested_relu = plan.chosen;
    plan.relu_fault = fault;
    return !fault;
  }

  int algorithm_of(const cublasLtMatmulHeuristicResult_t& candidate) const {
    int32_t id = -1;
    size_t written = 0;
    const cublasStatus_t status =
        lt.cublasLtMatmulAlgoConfigGetAttribute(&candidate.algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written);
    return status == CUBLAS_STATUS_SUCCESS ? id : -1;
  }

  const CublasLt& lt;
  std::mutex mutex;

 private:
  // Returns the workspace, one for all products because they run one after the other. A recording must not allocate, so products
  // recorded before a workspace exists run without one.
  size_t workspace_bytes(const Queue& q) {
    if (!workspace_ && !q.recording) workspace_ = allocator(Device::cuda).allocate(kWorkspaceBytes, MemoryTag::workspace);
    return workspace_ ? kWorkspaceBytes : 0;
  }

  // A product's arguments with zeros for a, b and the bias, in separate memory.
  struct Zeros {
    std::unique_ptr<void, void (*)(void*)> memory;
    GemmArgs operands;
  };
  // Returns empty if there is no memory for them.
  static std::optional<Zeros> zeros_like(const Queue& q, const GemmArgs& g) {
    Zeros zeros{{nullptr, [](void* p) { allocator(Device::cuda).release(p); }}, g};
    TensorView* const views[] = {&zeros.operands.a, &zeros.operands.b, &zeros.operands.bias};
    size_t bytes = 0, begins[3];
    for (int i = 0; i < 3; ++i) {
      begins[i] = bytes;
      if (*views[i]) bytes += device_block_size(offset_of_last(*views[i]) + size_of(views[i]->dtype));  // aligned for any plan
    }
    try {
      zeros.memory.reset(allocator(Device::cuda).allocate(bytes, MemoryTag::workspace));
    } catch (const MemoryError&) { return {}; }
    check_cuda(cudaMemsetAsync(zeros.memory.get(), 0, bytes, q.stream), "cudaMemsetAsync");
    for (int i = 0; i < 3; ++i) {
      if (*views[i]) views[i]->data = static_cast<char*>(zeros.memory.get()) + begins[i];
    }
    return zeros;
  }

  // Returns the first and the last row of the result of a run on zeros at `from`: c or its mask, with `bits` per column.
  std::string first_and_last_row(const Queue& q, Plan& plan, const GemmArgs& g, const Zeros& zeros, const void* from, size_t bits,
                                 cublasStatus_t& status) const {
    const int64_t columns = g.c.shape.back(), rows = g.c.numel() / columns;
    const size_t row_bytes = (size_t(columns) * bits + 7) / 8, step = from == g.c.data ? row_bytes : size_t(g.aux.strides[0]);
    plan.descriptors.point_to(matmul_pointers(zeros.operands));
    status = run(q, plan, plan.candidates[plan.chosen], zeros.operands);
    plan.descriptors.point_to(matmul_pointers(g));
    std::string out(2 * row_bytes, '\0');
    if (status != CUBLAS_STATUS_SUCCESS) return out;
    for (size_t i = 0; i < 2; ++i) {
      check_cuda(cudaMemcpyAsync(out.data() + i * row_bytes, static_cast<const char*>(from) + (i ? size_t(rows - 1) * step : 0),
                                 row_bytes, cudaMemcpyDeviceToHost, q.stream),
                 "cudaMemcpyAsync");
    }
    check_cuda(cudaStreamSynchronize(q.stream), "cudaStreamSynchronize");
    return out;
  }

  std::unique_ptr<Plan> make_plan(const MatmulKey& key, const MatmulPointers& pointers) const {
    auto plan = std::make_unique<Plan>(lt, key, pointers);
    const MatmulDescriptors& d = plan->descriptors;
    plan->candidates.resize(kCandidates);
    int found = 0;
    plan->status = lt.cublasLtMatmulAlgoGetHeuristic(handle_, d.operation, d.a, d.b, d.d, d.d, d.preference, kCandidates,
                                                     plan->candidates.data(), &found);
    plan->candidates.resize(plan->status == CUBLAS_STATUS_SUCCESS ? size_t(found) : 0);
    std::erase_if(plan->candidates, [&](const auto& c) {
      if (c.state != CUBLAS_STATUS_SUCCESS) plan->status = c.state;
      return c.state != CUBLAS_STATUS_SUCCESS;
    });
    if (!plan->candidates.empty()) plan->status = CUBLAS_STATUS_SUCCESS;
    return plan;
  }

  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::unordered_map<MatmulKey, std::unique_ptr<Plan>, MatmulKeyHash> plans_;
};

// Never destroyed: the driver may be gone before static objects are.
Library& library() {
  static Library* const instance = new Library(cublaslt());
  return *instance;
}

bool is_refusal(cublasStatus_t s) {
  return s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_INVALID_VALUE || s == CUBLAS_STATUS_ARCH_MISMATCH;
}

}  // namespace

bool matmul(const Queue& q, const GemmArgs& g) {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  Plan* const plan = lib.plan(q, g);
  if (!plan) return false;
  if (launch_watcher) {
    for (const TensorView* v : {&g.a, &g.b, &g.bias, &g.aux}) launch_watcher->uses_fixed(v->data);
  }
  while (!plan->exhausted()) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (applies_relu(g) && !lib.relu_is_ours(q, *plan, g, status) && status == CUBLAS_STATUS_SUCCESS) return false;
    if (status == CUBLAS_STATUS_SUCCESS) status = lib.run(q, *plan, plan->candidates[plan->chosen], g);
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    if (!is_refusal(status)) check_cublaslt(status, "cublasLtMatmul");
    plan->status = status;
    ++plan->chosen;  // proposed but refused
  }
  return false;
}

MatmulFacts matmul_facts(const Queue& q, const GemmArgs& g) {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  const Plan* const plan = lib.plan(q, g);
  if (!plan) return {.status = "not in the library's words"};
  MatmulFacts f{.candidates = int(plan->candidates.size()), .candidate = int(plan->chosen), .status = "success"};
  if (plan->exhausted()) {
    f.status = status_text(plan->status);
    if (plan->status == CUBLAS_STATUS_SUCCESS) f.status = "no candidates";
    if (f.candidates > 0) f.status = "refused when run, " + f.status;
    return f;
  }
  if (applies_relu(g) && plan->tested_relu != plan->chosen)
    f.status = "ReLU not asked for yet";
  else if (applies_relu(g) && plan->relu_fault)
    f.status = plan->relu_fault;
  f.algorithm = lib.algorithm_of(plan->candidates[plan->chosen]);
  f.workspace = plan->candidates[plan->chosen].workspaceSize;
  return f;
}

void tune_matmul(const Queue& q, const GemmArgs& g) {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  Plan* const plan = lib.plan(q, g);
  if (!plan || plan->tuned) return;
  plan->tuned = true;
  double best = 0;
  size_t fastest = plan->candidates.size();
  for (size_t i = 0; i < plan->candidates.size(); ++i) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const double ms = time_of(q, [&] {
      if (status == CUBLAS_STATUS_SUCCESS) status = lib.run(q, *plan, plan->candidates[i], g);
    });
    if (status != CUBLAS_STATUS_SUCCESS) plan->status = status;
    if (status != CUBLAS_STATUS_SUCCESS || (fastest < plan->candidates.size() && ms >= best)) continue;
    best = ms;
    fastest = i;
  }
  plan->chosen = fastest;
}

bool choose_candidate(const Queue& q, const GemmArgs& g, int candidate, int algorithm) {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  Plan* const plan = lib.plan(q, g);
  if (!plan || size_t(candidate) >= plan->candidates.size()) return false;
  if (lib.algorithm_of(plan->candidates[size_t(candidate)]) != algorithm) return false;
  plan->chosen = size_t(candidate);
  plan->tuned = true;
  return true;
}

double time_of(const Queue& q, const std::function<void()>& call) {
  Event begin, end;
  call();
  begin.record(q.stream);
  for (int i = 0; i < kTimings; ++i) call();
  end.record(q.stream);
  end.wait();
  return double(milliseconds(begin, end)) / kTimings;
}

}  // namespace halfstep::cuda
