// Plans: the library's descriptors and its choice of code for a kind of product, made once and kept.
#include "cuda/blas/matmul.h"

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

constexpr size_t kWorkspaceBytes = size_t(32) << 20;  // NVIDIA's advice for sm_90
constexpr size_t kPlans = 4096;                       // kept; more kinds than that start anew
constexpr int kCandidates = 8;
constexpr int kTimings = 5;

static_assert(sizeof(MatmulKey) == 23 * sizeof(int64_t), "hashed as words: no padding");
struct KeyHash {
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
  size_t chosen = 0;
  bool tuned = false;
  bool declined = false;  // a twin is faster
};

class Library {
 public:
  explicit Library(const CublasLt& functions) : lt(functions) { check_cublaslt(lt.cublasLtCreate(&handle_), "cublasLtCreate"); }

  // Null: not for the library. The plans of kinds that it has no code for are kept too.
  Plan* plan(const Queue& q, const GemmArgs& g) {
    const std::optional<MatmulKey> key = matmul_key(g, workspace_bytes(q));
    if (!key) return nullptr;
    const MatmulPointers pointers = matmul_pointers(g);
    if (const auto found = plans_.find(*key); found != plans_.end()) {
      found->second->descriptors.point_to(pointers);
      return found->second.get();
    }
    if (plans_.size() >= kPlans) plans_.clear();
    return (plans_[*key] = make(*key, pointers)).get();
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

  const CublasLt& lt;
  std::mutex mutex;

 private:
  // One for all products: they run one after the other. A recording may not take memory, so what it records before there is a
  // workspace does without.
  size_t workspace_bytes(const Queue& q) {
    if (!workspace_ && !q.recording) workspace_ = allocator(Device::cuda).allocate(kWorkspaceBytes, MemoryTag::workspace);
    return workspace_ ? kWorkspaceBytes : 0;
  }

  std::unique_ptr<Plan> make(const MatmulKey& key, const MatmulPointers& pointers) const {
    auto plan = std::make_unique<Plan>(lt, key, pointers);
    const MatmulDescriptors& d = plan->descriptors;
    plan->candidates.resize(kCandidates);
    int found = 0;
    const cublasStatus_t status = lt.cublasLtMatmulAlgoGetHeuristic(handle_, d.operation, d.a, d.b, d.d, d.d, d.preference,
                                                                    kCandidates, plan->candidates.data(), &found);
    plan->candidates.resize(status == CUBLAS_STATUS_SUCCESS ? size_t(found) : 0);
    std::erase_if(plan->candidates, [](const auto& c) { return c.state != CUBLAS_STATUS_SUCCESS; });
    return plan;
  }

  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::unordered_map<MatmulKey, std::unique_ptr<Plan>, KeyHash> plans_;
};

// Never destroyed: the driver may be gone before static objects are.
Library& library() {
  static Library* const instance = new Library(cublaslt());
  return *instance;
}

bool is_refusal(cublasStatus_t s) {
  return s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_INVALID_VALUE || s == CUBLAS_STATUS_ARCH_MISMATCH;
}

// Milliseconds of one call, after one that is not counted.
template <class F>
float time_of(const Queue& q, const F& call) {
  Event begin, end;
  call();
  begin.record(q.stream);
  for (int i = 0; i < kTimings; ++i) call();
  end.record(q.stream);
  end.wait();
  return milliseconds(begin, end) / kTimings;
}

}  // namespace

bool matmul(const Queue& q, const GemmArgs& g) {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  Plan* const plan = lib.plan(q, g);
  if (!plan || plan->declined) return false;
  if (launch_watcher) {
    for (const TensorView* v : {&g.a, &g.b, &g.bias, &g.aux}) launch_watcher->uses_fixed(v->data);
  }
  while (plan->chosen < plan->candidates.size()) {
    const cublasStatus_t status = lib.run(q, *plan, plan->candidates[plan->chosen], g);
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    if (!is_refusal(status)) check_cublaslt(status, "cublasLtMatmul");
    ++plan->chosen;  // proposed, yet refused
  }
  return false;
}

void tune_matmul(const Queue& q, const GemmArgs& g, const std::function<void()>& twin) {
  Library& lib = library();
  float best = 0;
  {
    const std::lock_guard lock(lib.mutex);
    Plan* const plan = lib.plan(q, g);
    if (!plan || plan->tuned) return;
    plan->tuned = true;
    size_t fastest = plan->candidates.size();
    for (size_t i = 0; i < plan->candidates.size(); ++i) {
      cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
      const auto call = [&] {
        if (status == CUBLAS_STATUS_SUCCESS) status = lib.run(q, *plan, plan->candidates[i], g);
      };
      const float ms = time_of(q, call);
      if (status != CUBLAS_STATUS_SUCCESS || (fastest < plan->candidates.size() && ms >= best)) continue;
      best = ms;
      fastest = i;
    }
    plan->chosen = fastest;
    if (fastest == plan->candidates.size()) return;
  }
  if (!twin || time_of(q, twin) >= best) return;
  const std::lock_guard lock(lib.mutex);
  lib.plan(q, g)->declined = true;
}

}  // namespace halfstep::cuda
