// SPDX-License-Identifier: Apache-2.0
// A child of fork() that computes while another thread of its parent did so when it was made.
#include "framework/base/fork_mutex.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "framework/autograd/grad_mode.h"
#include "framework/base/sanitizers.h"
#include "framework/ops/ops.h"

using namespace halfstep;

TEST_CASE("fork() waits for a mutex that another thread holds, and the child has it free") {
  static ForkMutex mutex;
  std::atomic<bool> held = false;
  std::thread holder([&] {
    const std::lock_guard lock(mutex);
    held = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  while (!held) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) _exit(mutex.try_lock() ? 7 : 8);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  holder.join();
  CHECK(mutex.try_lock());
  mutex.unlock();
}

TEST_CASE("fork() waits for a value that another thread makes, which may need a new mutex, and the child has it") {
  static std::atomic<bool> began = false;
  static constinit ForkMutex mutex;
  const auto value = [] {
    return made_once([] {
      began = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const std::lock_guard lock(mutex);
      return 7;
    });
  };
  std::thread maker(value);
  while (!began) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    _exit(value());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  maker.join();
  CHECK(NoFork::count() == 0);
}

// Clang 14's address sanitizer leaves the lock of its allocator locked in a child; the thread sanitizer does not know its threads.
#if !defined(HALFSTEP_ADDRESS_SANITIZER) && !defined(HALFSTEP_THREAD_SANITIZER)
TEST_CASE("children compute, whatever another thread was doing") {
  const Tensor x = randn({64, 64}), w = randn({64, 64}), small = randn({8, 8}).requires_grad_(true);
  const Tensor image = randn({1, 16, 8, 8}), filters = randn({16, 16, 3, 3});
  // The locks of a leaf's graph, of the generator, of the allocator and of packed weights, and the library's code at its first use.
  const auto compute = [&] {
    (void)(small * randn({8, 8})).sum();
    const InferenceMode inference;
    (void)linear(x, w);
    (void)conv2d(image, filters);
  };
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) compute();
  });
  int lost = 0;
  for (int k = 0; k < 20; ++k) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      compute();
      _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    lost += !WIFEXITED(status) || WEXITSTATUS(status) != 7;
  }
  stop = true;
  other.join();
  CHECK(lost == 0);
}
#endif
