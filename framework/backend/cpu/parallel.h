// SPDX-License-Identifier: Apache-2.0
// Compiles a loop for several instruction sets, and runs one on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>

#include "framework/backend/backend.h"
#include "framework/backend/cpu/team.h"
#include "framework/backend/workspace.h"

// Compiles the loops of a function for x86-64 v2, v3 and v4; the program chooses one when it starts.
#if defined(HALFSTEP_MULTIARCH)
#define HS_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HS_CLONES
#endif
// Marks a loop with independent iterations (also for equal pointers).
#define HS_INDEPENDENT _Pragma("GCC ivdep")

namespace halfstep::cpu {

inline constexpr int64_t kBlock = 1024;    // elements per call of a kernel, so that its buffers stay in the first-level cache
inline constexpr int64_t kCacheLine = 64;  // bytes

// The first exception of a team of threads: it must not leave the function that the team calls, so it is stored and thrown again
// after the call.
class FirstException {
 public:
  template <class F>
  void guard(const F& f) noexcept {
    try {
      f();
    } catch (...) {
      if (!caught_.exchange(true)) error_ = std::current_exception();
    }
  }
  void rethrow() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> caught_ = false;
  std::exception_ptr error_;
};

// Returns the number of threads for which to split a product or convolution: as many as pay for it, or, if results must not depend
// on the number of threads, a number that follows from the work alone. The threads that pay for it then share the pieces.
inline int threads_to_cut_for(int64_t work) {
  return threads_independent() ? threads_by_shape(work) : threads_for(work, num_threads());
}

// Calls f(task) for task in [0, tasks), handed out one by one to as many threads as pay for `work` cheap elements (team.h): for
// tasks of unequal cost. With one thread, wakes no other.
template <class F>
void parallel_tasks(int64_t tasks, int64_t work, const F& f) {
  if (WorkspacePlan::open()) [[unlikely]]
    return;
  const int threads = threads_for(work, int(std::min<int64_t>(num_threads(), tasks)));
  if (threads == 1) {
    for (int64_t i = 0; i < tasks; ++i) f(i);
    return;
  }
  struct Shared {
    const F& f;
    FirstException exception;
  } shared{f, {}};
  const auto task = [](void* context, int64_t i) {
    auto& call = *static_cast<Shared*>(context);
    call.exception.guard([&] { call.f(i); });
  };
  run_team(tasks, threads, task, &shared);
  shared.exception.rethrow();
}

// Calls f(begin, end) for consecutive parts of [0, n), each a multiple of `grain` except the last, on as many threads as pay for
// `work`. f must compute element i from i alone: the parts depend on the number of threads.
template <class F>
void parallel_for(int64_t n, int64_t grain, int64_t work, const F& f) {
  if (n <= 0 || WorkspacePlan::open()) return;
  const int64_t grains = (n + grain - 1) / grain;
  const int threads = threads_for(work, int(std::min<int64_t>(num_threads(), grains)));
  if (threads == 1) return f(int64_t(0), n);
  const int64_t parts = std::min<int64_t>(pieces_for(work, threads), grains);
  parallel_tasks(parts, work, [&](int64_t part) {
    const int64_t begin = grains * part / parts * grain, end = grains * (part + 1) / parts * grain;
    f(begin, end < n ? end : n);
  });
}

// Deleted because the parameter was once a bool, and a bool would silently convert to an amount of work.
template <class F>
void parallel_tasks(int64_t tasks, bool, const F& f) = delete;
template <class F>
void parallel_for(int64_t n, int64_t grain, bool, const F& f) = delete;

}  // namespace halfstep::cpu
