// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/cpu/team.h"

#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "framework/backend/cpu/parallel.h"
#include "framework/base/check.h"
#include "framework/base/sanitizers.h"
#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;
using cpu::kShare;
using cpu::parallel_for;
using cpu::parallel_tasks;
using cpu::pieces_for;
using cpu::product_work;
using cpu::teams_called;
using cpu::threads_for;

namespace {

// How often f calls other threads, of 2.
template <class F>
int64_t calls_of(const F& f) {
  set_num_threads(2);
  const int64_t before = teams_called();
  f();
  const int64_t after = teams_called();
  set_num_threads(0);
  return after - before;
}

int64_t calls_of_product(DType t, int64_t m, int64_t n, int64_t k) {
  const Buffer a = uniform(t, {m, k}, 1), b = uniform(t, {k, n}, 2), c = make(t, {m, n});
  return calls_of([&] { testing::cpu().gemm({.a = a, .b = b, .c = c}); });
}

}  // namespace

TEST_CASE("threads by work") {
  struct Row {
    int64_t work;
    int most, threads;
  };
  for (const Row& r :
       {Row{0, 8, 1}, Row{-5, 8, 1}, Row{kShare, 8, 1}, Row{2 * kShare - 1, 8, 1}, Row{2 * kShare, 8, 2}, Row{3 * kShare, 8, 3},
        Row{8 * kShare, 8, 8}, Row{int64_t(1) << 60, 8, 8}, Row{int64_t(1) << 60, 1, 1}, Row{int64_t(1) << 60, 0, 1}}) {
    CAPTURE(r.work);
    CHECK(threads_for(r.work, r.most) == r.threads);
  }
  CHECK(pieces_for(int64_t(1) << 40, 1) == 1);
  CHECK(pieces_for(2 * kShare, 2) == 2);
  CHECK(pieces_for(32 * kShare, 2) == 4);
}

TEST_CASE("products by their operations and bytes") {
  const auto threads = [](int64_t m, int64_t n, int64_t k, bool bf16) { return threads_for(product_work(1, m, n, k, bf16), 8); };
  for (bool bf16 : {false, true}) {
    CHECK(threads(64, 64, 64, bf16) == 1);
    CHECK(threads(1, 128, 128, bf16) == 1);
    CHECK(threads(128, 256, 256, bf16) == 8);
    CHECK(threads(1, 4096, 4096, bf16) == 8);  // no more than a read of b, but 64 MB of it
  }
  CHECK(product_work(1, 512, 512, 512, true) < product_work(1, 512, 512, 512, false));
  CHECK(product_work(3, 64, 64, 64, false) == 3 * product_work(1, 64, 64, 64, false));
}

TEST_CASE("small work wakes nobody") {
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    CAPTURE(name(t));
    CHECK(calls_of_product(t, 64, 64, 64) == 0);
    CHECK(calls_of_product(t, 512, 512, 512) >= 1);
    for (int64_t n : {64, 2048}) {
      const Buffer x = uniform(t, {64, n}, 1), y = make(t, {64, n}), row = make(t, {1, n});
      CHECK(calls_of([&] { testing::cpu().unary(Unary::relu, x, y); }) == (n == 64 ? 0 : 1));
      CHECK((calls_of([&] { testing::cpu().reduce(Reduce::sum, x, row); }) > 0) == (n == 2048));
    }
  }
  set_num_threads(1);
  const int64_t before = teams_called();
  const Buffer x = uniform(DType::f32, {512, 512}, 1), y = make(DType::f32, {512, 512});
  testing::cpu().gemm({.a = x, .b = x, .c = y});
  CHECK(teams_called() == before);
  set_num_threads(0);
}

TEST_CASE("every task is done once, whichever thread takes it") {
  for (int threads : {1, 2, 3, 5}) {
    set_num_threads(threads);
    for (int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> done(size_t(std::max<int64_t>(tasks, 1)));
      for (int repeat = 0; repeat < 20; ++repeat) parallel_tasks(tasks, int64_t(1) << 40, [&](int64_t i) { ++done[size_t(i)]; });
      for (int64_t i = 0; i < tasks; ++i) CHECK(done[size_t(i)] == 20);
    }
    for (int64_t n : {1, 15, 16, 17, 1000}) {
      std::vector<int> seen(static_cast<size_t>(n));
      parallel_for(n, 16, int64_t(1) << 40, [&](int64_t begin, int64_t end) {
        CHECK_MESSAGE(begin % 16 == 0, begin);
        for (int64_t i = begin; i < end; ++i) ++seen[size_t(i)];
      });
      CHECK(seen == std::vector<int>(size_t(n), 1));
    }
  }
  set_num_threads(0);
}

TEST_CASE("a task's exception reaches the caller, and the team continues") {
  set_num_threads(3);
  for (int repeat = 0; repeat < 3; ++repeat) {
    CHECK_THROWS_WITH_AS(parallel_tasks(9, int64_t(1) << 40, [](int64_t i) { check<ValueError>(i != 4, "task", "four"); }),
                         "[task] four", ValueError);
  }
  set_num_threads(0);
}

TEST_CASE("a task that wants a team of its own works alone, and so does a second caller") {
  set_num_threads(3);
  std::atomic<int64_t> sum = 0;
  const auto nested = [&] {
    parallel_tasks(4, int64_t(1) << 40, [&](int64_t) { parallel_tasks(5, int64_t(1) << 40, [&](int64_t i) { sum += i; }); });
  };
  nested();
  CHECK(sum == 4 * 10);
  std::thread other([&] {
    for (int i = 0; i < 200; ++i) nested();
  });
  for (int i = 0; i < 200; ++i) nested();
  other.join();
  CHECK(sum == 401 * 40);
  set_num_threads(0);
}

#if defined(__x86_64__)  // elsewhere the library has convolutions of its own for some CPUs alone
TEST_CASE("the team's threads share the images of a convolution") {
  if (testing::cpu().describe().find("products: oneDNN") == std::string::npos) return;
  set_num_threads(2);
  const auto teams = [](int64_t images) {
    const Window window{.dims = 2, .size = {3, 3, 1}, .padding = {1, 1, 0}};
    const Buffer x = uniform(DType::f32, {images, 16, 40, 40}, 1), weight = uniform(DType::f32, {16, 16, 3, 3}, 2),
                 y = make(DType::f32, {images, 16, 40, 40}), bias = make(DType::f32, {16});
    const int64_t before = teams_called();
    testing::cpu().conv(x, weight, bias, window, 1, false, y);
    return teams_called() - before;
  };
  CHECK(teams(8) == 1);
  CHECK(teams(1) == 0);  // oneDNN divides the one image itself
  set_num_threads(0);
}
#endif

// As the test backend.openmp runs it; others let OpenMP's threads sleep.
TEST_CASE("OpenMP's threads take the tasks while they look out for work") {
  const char* const policy = std::getenv("OMP_WAIT_POLICY");
  set_num_threads(2);
  std::atomic<int> in_openmp = 0, done = 0;
  const auto tasks = [&] {
    cpu::openmp_was_used();
    parallel_tasks(50, int64_t(1) << 40, [&](int64_t) { in_openmp += omp_in_parallel(), ++done; });
  };
  [[maybe_unused]] const bool wanted = (!policy || std::string(policy) == "ACTIVE") && omp_get_max_threads() > 1;
  // On a busy machine a thread may not run for a while, and then the team leaves OpenMP's threads alone for 250 ms.
  for (int trial = 0; trial < 20 && (trial == 0 || (wanted && in_openmp != 50)); ++trial) {
    if (trial > 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    in_openmp = done = 0;
    tasks();
    CHECK(done == 50);
  }
#if !defined(HALFSTEP_THREAD_SANITIZER) && !defined(__clang__)
  CHECK((in_openmp == 50) == wanted);
#endif
  cpu::openmp_was_used();
  CHECK_THROWS_AS(parallel_tasks(9, int64_t(1) << 40, [](int64_t i) { check<ValueError>(i != 4, "task", "four"); }), ValueError);
  // Tasks within tasks, and those of another thread at the same time.
  done = 0;
  const auto nested = [&] { parallel_tasks(4, int64_t(1) << 40, [&](int64_t) { tasks(); }); };
  std::thread other([&] {
    for (int i = 0; i < 20; ++i) nested();
  });
  for (int i = 0; i < 20; ++i) nested();
  other.join();
  CHECK(done == 2 * 20 * 4 * 50);
  set_num_threads(0);
}

#if !defined(HALFSTEP_THREAD_SANITIZER)  // which ends a child that starts threads
TEST_CASE("the child of a fork has its threads, too") {
  set_num_threads(2);
  const auto sum = [] {
    std::atomic<int64_t> total = 0;
    parallel_tasks(100, int64_t(1) << 40, [&](int64_t i) { total += i; });
    return total.load();
  };
  CHECK(sum() == 4950);
  cpu::openmp_was_used();
  CHECK(sum() == 4950);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that waits for threads that it has not is ended
    _exit(sum() == 4950 && sum() == 4950 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  set_num_threads(0);
}
#endif

TEST_CASE("products in pieces: right, and the same bits whichever thread computes them") {
  struct Case {
    Shape a, b;
    bool ta, tb;
  };
  for (const Case& k : {Case{{300, 200}, {200, 260}, false, true}, Case{{40, 700}, {700, 500}, false, false},
                        Case{{515, 130}, {130, 131}, true, false}, Case{{5, 900}, {900, 901}, false, true},
                        Case{{2, 150, 160}, {2, 160, 170}, false, true}, Case{{7, 90, 80}, {7, 80, 100}, true, false}}) {
    for (DType t : {DType::f32, DType::bf16, DType::f16}) {
      CAPTURE(name(t));
      const Buffer a = operand(t, k.a, k.ta, 1), b = operand(t, k.b, k.tb, 2);
      const int64_t rows = k.a[k.a.size() - 2], columns = k.b[k.b.size() - 1];
      const Shape shape = k.a.size() == 3 ? Shape{k.a[0], rows, columns} : Shape{rows, columns};
      const Buffer bias = uniform(DType::f32, {columns}, 3);
      for (bool fused : {false, true}) {
        const auto run = [&](int threads) {
          set_num_threads(threads);
          const Buffer c = make(t, shape);
          testing::cpu().gemm({.a = a,
                               .b = b,
                               .c = c,
                               .bias = fused ? bias.view : TensorView{},
                               .activation = fused ? Activation::relu : Activation::none});
          return c;
        };
        const Buffer alone = run(1), shared = run(3);
        bool right = true;
        for (int64_t i = 0; i < alone.numel(); ++i) right = right && close(t, shared[i], alone[i], 4, 2e-4);
        CHECK(right);
        for (int repeat = 0; repeat < 5; ++repeat) CHECK(run(3).raw() == shared.raw());
      }
    }
  }
  set_num_threads(0);
}

TEST_CASE("a program's own OpenMP setting outlives a call") {
  const int before = omp_get_max_threads();
  omp_set_num_threads(5);
  const Buffer x = uniform(DType::f32, {256, 256}, 1), y = make(DType::f32, {256, 256});
  testing::cpu().gemm({.a = x, .b = x, .c = y});
  CHECK(omp_get_max_threads() == 5);
  omp_set_num_threads(before);
}
