// SPDX-License-Identifier: Apache-2.0
// Signals that arrive within products and convolutions find the stack pointer on the thread's own stack.
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#include <pthread.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>

#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

uintptr_t g_stack, g_stack_end;
volatile std::sig_atomic_t g_inside, g_outside;

void count(int, siginfo_t*, void* context) {
#if defined(__x86_64__)
  const auto at = uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
#else
  const auto at = uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext.sp);
#endif
  if (at >= g_stack && at < g_stack_end)
    g_inside = g_inside + 1;
  else
    g_outside = g_outside + 1;
}

// Calls count() on this thread every 50 microseconds, on a stack of its own so that a failure of this test damages nothing.
class Ticks {
 public:
  Ticks() {
    pthread_attr_t attributes;
    void* stack = nullptr;
    size_t bytes = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &bytes);
    pthread_attr_destroy(&attributes);
    g_stack = uintptr_t(stack), g_stack_end = g_stack + bytes;
    g_inside = 0;
    g_outside = 0;
    const stack_t other{.ss_sp = own_.data(), .ss_flags = 0, .ss_size = own_.size()};
    sigaltstack(&other, &stack_before_);
    struct sigaction action = {};
    action.sa_sigaction = count;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(SIGALRM, &action, &before_);
    sigevent here{};
    here.sigev_notify = SIGEV_THREAD_ID;
    here.sigev_signo = SIGALRM;
    here._sigev_un._tid = gettid();
    timer_create(CLOCK_MONOTONIC, &here, &timer_);
    const itimerspec often{{0, 50000}, {0, 50000}};
    timer_settime(timer_, 0, &often, nullptr);
  }
  ~Ticks() {
    timer_delete(timer_);
    sigaction(SIGALRM, &before_, nullptr);
    sigaltstack(&stack_before_, nullptr);
  }

 private:
  std::array<char, 1 << 18> own_;
  timer_t timer_{};
  struct sigaction before_ = {};
  stack_t stack_before_ = {};
};

template <class F>
void check_interrupted(const F& call) {
  call();  // the code for the sizes is made
  const Ticks ticks;
  const auto start = std::chrono::steady_clock::now();
  // Until a hundred signals came between and within the calls; a machine that delivers few gets more time.
  while (g_inside + g_outside < 100 && std::chrono::steady_clock::now() - start < std::chrono::seconds(5)) call();
  CHECK(g_inside > 0);
  CHECK(g_outside == 0);
}

}  // namespace

TEST_CASE("no signal arrives while the stack pointer is elsewhere") {
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    set_num_threads(threads);
    for (const auto& sizes : {std::array<int64_t, 3>{4, 64, 256}, {64, 256, 1024}, {512, 256, 784}}) {
      const int64_t m = sizes[0], n = sizes[1], k = sizes[2];
      CAPTURE(m);
      CAPTURE(k);
      const Buffer a = uniform(DType::f32, {m, k}, 1), b = uniform(DType::f32, {k, n}, 2), c = make(DType::f32, {m, n});
      check_interrupted([&, &c = c] { testing::cpu().gemm({.a = a, .b = b, .c = c}); });
    }
    for (const auto& sizes : {std::array<int64_t, 2>{10, 784}, {512, 100}, {300, 3000}}) {
      const int64_t n = sizes[0], k = sizes[1];
      CAPTURE(n);
      const Buffer a = uniform(DType::f32, {1, k}, 1), weight = uniform(DType::f32, {n, k}, 2), c = make(DType::f32, {1, n});
      TensorView b = weight;
      b.shape = {k, n};
      b.strides = {1, k};
      check_interrupted([&, &c = c] { testing::cpu().gemm({.a = a, .b = b, .c = c}); });
    }
    for (const int64_t groups : {1, 3}) {
      CAPTURE(groups);
      const Buffer x = uniform(DType::f32, {2, 15, 9, 9}, 1), weight = uniform(DType::f32, {21, 15 / groups, 5, 5}, 2);
      const Buffer y = make(DType::f32, {2, 21, 5, 5}), dw = make(DType::f32, {21, 15 / groups, 5, 5});
      const Buffer dx = make(DType::f32, {2, 15, 9, 9});
      const Window window{.size = {5, 5, 1}};
      check_interrupted([&] {
        testing::cpu().conv(x, weight, {}, window, groups, false, y);
        testing::cpu().conv_backward_data(y, weight, {}, window, groups, dx);
        testing::cpu().conv_backward_weight(x, y, window, groups, dw, {});
      });
    }
    set_num_threads(0);
  }
}
#endif
