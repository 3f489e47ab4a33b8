// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/cpu/team.h"

#include <pthread.h>
#include <strings.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "framework/backend/cpu/held_signals.h"
#include "framework/base/float_state.h"
#include "framework/base/sanitizers.h"

namespace halfstep::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// How long a thread spins before it sleeps: about as long as the serial parts between two calls of a training step. The caller
// spins less: while it sleeps, a helper that another program pushed off its core can run on the caller's core.
constexpr Clock::duration kHelperSpin = std::chrono::microseconds(250), kCallerSpin = std::chrono::microseconds(10);

// Wait after which a caller works alone. If it waited for its helpers longer than it worked, and longer than any of them needs to
// wake up, another program shares its cores. It then works alone for ten times as long, so less than a tenth of the time is lost.
constexpr Clock::duration kLongWait = std::chrono::microseconds(200);
constexpr int kAloneFactor = 10;

// Least time that OpenMP's threads wait for more work before they sleep, unless the environment sets another.
constexpr Clock::duration kOpenMpWaits = std::chrono::milliseconds(2);
// In an OpenMP team a caller cannot leave tasks to others, and waits for threads that the system does not run. After such a wait,
// halfstep's own team is used for this long.
constexpr Clock::duration kNoOpenMp = std::chrono::milliseconds(250);

// Only GCC's OpenMP, which oneDNN uses; another one would start its own threads. The thread sanitizer does not see how its threads
// wait for each other.
#if defined(_OPENMP) && defined(__GNUC__) && !defined(__clang__) && !defined(HALFSTEP_THREAD_SANITIZER)
constexpr bool kHasOpenMp = true;
#else
constexpr bool kHasOpenMp = false;
#endif

// Returns whether OpenMP's threads spin while they wait for work, as far as the environment says.
bool openmp_threads_spin() {
  const char* const policy = std::getenv("OMP_WAIT_POLICY");
  const char* const count = std::getenv("GOMP_SPINCOUNT");
  return kHasOpenMp && !count && (!policy || strcasecmp(policy, "passive") != 0);
}
const bool may_use_openmp = openmp_threads_spin();
std::atomic<bool> forked = false;  // the child of a fork has no OpenMP threads
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] { forked = true; });
// The last use of OpenMP's threads by this thread.
struct OpenMpUse {
  Clock::time_point last{};
  int threads = 0;
};
thread_local constinit OpenMpUse openmp_use{};

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // takes about as long; `yield` does nothing on most cores
#endif
}

// Spins until condition() is true, for at most `longest`. A pause takes 10 to 50 ns, depending on the CPU; reading the clock takes
// about 25.
template <class F>
void spin_until(Clock::duration longest, const F& condition) {
  for (Clock::time_point until{};;) {
    for (int k = 0; k < 32; ++k) {
      if (condition()) return;
      pause();
    }
    const Clock::time_point now = Clock::now();
    if (until == Clock::time_point{}) until = now + longest;
    if (now >= until) return;
  }
}

// Helper threads, which live as long as the process and sleep in between.
class Team {
 public:
  void run(int64_t tasks, int threads, void (*task)(void*, int64_t), void* context) {
    const FloatState plain;
    const auto alone = [&] {
      for (int64_t i = 0; i < tasks; ++i) task(context, i);
    };
    if (in_use_.test_and_set(std::memory_order_acquire)) return alone();
    calls_.fetch_add(1, std::memory_order_relaxed);
    const Clock::time_point begun = Clock::now();
    if (begun < alone_until_) {
      alone();
    } else {
      task_ = task;
      context_ = context;
      tasks_ = tasks;
      next_ = 0;
      may_use_openmp_threads(threads, begun) ? work_in_openmp(threads, begun) : work_with_helpers(threads, begun);
    }
    in_use_.clear(std::memory_order_release);
  }

  int64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  void work() {
    for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_;) task_(context_, i);
  }

  bool may_use_openmp_threads(int threads, Clock::time_point now) const {
    return may_use_openmp && openmp_use.threads >= threads && now - openmp_use.last < kOpenMpWaits && now >= no_openmp_until_ &&
           !forked.load(std::memory_order_relaxed);
  }

  // Starts missing helpers, lets up to threads - 1 of them take tasks, and works until no helper does.
  void work_with_helpers(int threads, Clock::time_point begun) {
    for (; helpers_ < threads - 1; ++helpers_) {
      const HeldSignals held;  // the program's signal handlers run on its own threads
      try {
        std::thread([this] { help(); }).detach();
      } catch (const std::system_error&) { break; }  // no more threads available; fewer will do
    }
    seats_ = threads - 1;
    open_ = true;
    round_.fetch_add(1);
    for (int k = std::min(threads - 1, sleeping_.load()); k > 0; --k) round_.notify_one();
    work();
    open_ = false;  // no more helpers begin; inside_ counts those that have begun
    spin_until(kCallerSpin, [&] { return inside_ == 0; });
    if (inside_ != 0) wait_for_helpers(begun);
  }

  // Uses as many threads as the last time, because OpenMP ends the threads that a smaller team does not need.
  void work_in_openmp(int threads, Clock::time_point begun) {
    Clock::duration own{};
#if defined(_OPENMP)
#pragma omp parallel num_threads(openmp_use.threads)
    {
      const FloatState plain;
      const Clock::time_point entered = Clock::now();
      if (omp_get_thread_num() < threads) work();
      if (omp_get_thread_num() == 0) own = Clock::now() - entered;
    }
#endif
    openmp_use.last = Clock::now();
    if (openmp_use.last - begun - own > std::max(kLongWait, own)) no_openmp_until_ = openmp_use.last + kNoOpenMp;
  }

  // Sleeps until no helper works. After a long wait, later calls do without helpers for some time (kLongWait).
  void wait_for_helpers(Clock::time_point begun) {
    const Clock::time_point worked = Clock::now();
    caller_sleeps_ = true;
    for (uint32_t n; (n = inside_) != 0;) inside_.wait(n);
    caller_sleeps_ = false;
    const Clock::time_point now = Clock::now();
    if (now - worked > std::max(kLongWait, worked - begun)) alone_until_ = now + kAloneFactor * (now - worked);
  }

  // The loop of a helper thread: waits for the next round and takes tasks.
  void help() {
    const FloatState plain;  // not that of the caller that started this helper
    for (uint32_t seen = 0;;) {
      spin_until(kHelperSpin, [&] { return round_ != seen; });
      if (round_ == seen) {
        ++sleeping_;
        round_.wait(seen);
        --sleeping_;
      }
      seen = round_;
      ++inside_;  // before reading open_, because the caller closes it before it reads inside_
      if (open_ && seats_.fetch_sub(1) > 0) work();
      if (--inside_ == 0 && caller_sleeps_) inside_.notify_one();
    }
  }

  std::atomic_flag in_use_ = ATOMIC_FLAG_INIT;  // by one call at a time
  int helpers_ = 0;                             // threads started so far
  void (*task_)(void*, int64_t) = nullptr;
  void* context_ = nullptr;
  int64_t tasks_ = 0;
  Clock::time_point alone_until_{}, no_openmp_until_{};
  std::atomic<bool> open_ = false;  // whether helpers may begin tasks of this round
  std::atomic<bool> caller_sleeps_ = false;
  std::atomic<int> seats_ = 0;     // helpers that may still take part in this round
  std::atomic<int> sleeping_ = 0;  // helpers that sleep
  std::atomic<int64_t> calls_ = 0;
  alignas(64) std::atomic<uint32_t> round_ = 0;   // grows with each call; helpers sleep on it
  alignas(64) std::atomic<uint32_t> inside_ = 0;  // helpers that may be running a task
  alignas(64) std::atomic<int64_t> next_ = 0;     // the first untaken task
};

// Never destroyed: helpers refer to it until the process ends. The child of a fork has no helpers and starts its own.
Team& team() {
  static Team* shared = new Team;
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] { shared = new Team; });
  return *shared;
}

}  // namespace

void run_team(int64_t tasks, int threads, void (*task)(void* context, int64_t i), void* context) {
  team().run(tasks, threads, task, context);
}

void openmp_was_used() {
#if defined(_OPENMP)
  openmp_use.last = Clock::now();
  openmp_use.threads = omp_get_max_threads();
#endif
}

int64_t teams_called() { return team().calls(); }

}  // namespace halfstep::cpu
