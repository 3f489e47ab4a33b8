// Compiling a loop for several instruction sets, and running one on several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>

#include "framework/backend/backend.h"

// On a function whose loops should be compiled for x86-64 v2, v3 and v4 and chosen when the program starts.
#if defined(HALFSTEP_MULTIARCH)
#define HS_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HS_CLONES
#endif
// Before a loop whose iterations are independent (equal pointers included).
#define HS_INDEPENDENT _Pragma("GCC ivdep")

namespace halfstep::cpu {

inline constexpr int64_t kBlock = 1024;          // elements a kernel sees at once: its buffers stay in the first-level cache
inline constexpr int64_t kParallel = 32 * 1024;  // cheap elements below which a second thread does not pay

// Brings the first exception of a team of threads out of the parallel region, where it may not leave by itself.
class Escape {
 public:
  template <class F>
  void guard(const F& f) noexcept {
    try {
      f();
    } catch (...) {
      if (!taken_.exchange(true)) error_ = std::current_exception();
    }
  }
  void rethrow() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> taken_ = false;
  std::exception_ptr error_;
};

// f(begin, end) over consecutive parts of [0, n), each a multiple of `grain` but the last, on as many threads as pay.
// f must compute element i from i alone: the parts depend on the number of threads.
template <class F>
void parallel_for(int64_t n, int64_t grain, bool serial, const F& f) {
  if (n <= 0) return;
  const int threads = num_threads();
  const int64_t pieces = (n + grain - 1) / grain;
  if (serial || threads == 1 || pieces == 1) return f(int64_t(0), n);
  const int used = int(pieces < threads ? pieces : threads);
  Escape escape;
#pragma omp parallel for num_threads(used) schedule(static)
  for (int part = 0; part < used; ++part) {
    const int64_t begin = pieces * part / used * grain, end = pieces * (part + 1) / used * grain;
    escape.guard([&] { f(begin, end < n ? end : n); });
  }
  escape.rethrow();
}

// f(task) for task in [0, tasks), handed out one by one: for tasks of unequal cost.
template <class F>
void parallel_tasks(int64_t tasks, bool serial, const F& f) {
  const int threads = num_threads();
  if (serial || threads == 1 || tasks <= 1) {
    for (int64_t i = 0; i < tasks; ++i) f(i);
    return;
  }
  Escape escape;
#pragma omp parallel for num_threads(int(tasks < threads ? tasks : threads)) schedule(dynamic, 1)
  for (int64_t i = 0; i < tasks; ++i) escape.guard([&] { f(i); });
  escape.rethrow();
}

}  // namespace halfstep::cpu
