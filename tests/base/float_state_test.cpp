// SPDX-License-Identifier: Apache-2.0
// The caller's rounding mode, and whether it keeps denormals, change no result that several threads share.
#include "framework/base/float_state.h"

#include <doctest/doctest.h>

#include <cfenv>

#include "framework/backend/backend.h"
#include "framework/ops/ops.h"

using namespace halfstep;

namespace {

// Large enough for all threads: elementwise work, a product, a convolution and a softmax.
Tensors results() {
  static const Tensor tiny = full({1 << 20}, 1e-40), a = rand({300, 300}), images = rand({8, 16, 20, 20}),
                      taps = rand({16, 16, 3, 3});
  return {tiny * 1.0f, matmul(a, a), conv2d(images, taps), softmax(a, 1)};
}

bool same(const Tensors& a, const Tensors& b) {
  bool all = true;
  for (size_t i = 0; i < a.size(); ++i) all = all && equal(a[i], b[i]);
  return all;
}

}  // namespace

TEST_CASE("a program's rounding mode changes no result, and stays what it was") {
  set_num_threads(3);
  std::fesetround(FE_UPWARD);  // before the first call, which starts helpers
  const Tensors upward = results();
  CHECK(std::fegetround() == FE_UPWARD);
  std::fesetround(FE_TOWARDZERO);
  const Tensors towards_zero = results();
  CHECK(std::fegetround() == FE_TOWARDZERO);
  std::fesetround(FE_TONEAREST);
  const Tensors plain = results();
  CHECK(same(upward, plain));
  CHECK(same(towards_zero, plain));
  for (int call = 0; call < 5; ++call) CHECK(same(results(), plain));
  set_num_threads(0);
}

#if defined(__x86_64__) || defined(__aarch64__)
#if defined(__x86_64__)
constexpr uint64_t kFlush = 0x8040;  // FTZ, DAZ
uint64_t state() { return _mm_getcsr(); }
void set_state(uint64_t to) { _mm_setcsr(unsigned(to)); }
#else
constexpr uint64_t kFlush = uint64_t(1) << 24;  // FZ
uint64_t state() {
  uint64_t now;
  asm volatile("mrs %0, fpcr" : "=r"(now));
  return now;
}
void set_state(uint64_t to) { asm volatile("msr fpcr, %0" ::"r"(to)); }
#endif

TEST_CASE("denormals are kept where the program flushes them to zero") {
  set_num_threads(3);
  for (int call = 0; call < 5; ++call) {
    const Tensors plain = results();
    const uint64_t before = state();
    set_state(before | kFlush);
    const Tensors flushed = results();
    const uint64_t after = state();
    set_state(before);
    CHECK((after & kFlush) == kFlush);
    CHECK(same(flushed, plain));
    CHECK((plain[0] != 0).all().item<bool>());
  }
  set_num_threads(0);
}
#endif
