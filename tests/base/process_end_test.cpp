// SPDX-License-Identifier: Apache-2.0
// Threads and destructors of static objects that compute while the process ends: neither ends the program by a signal.
#include "framework/base/process_end.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "framework/backend/backend.h"
#include "framework/ops/ops.h"
#include "layers/nn.h"
#include "optim/optim.h"

using namespace halfstep;

namespace {

// What is computed: products by both codes of the library, packed ones, convolutions, recurrent steps and training.
void compute(int kind) {
  const Tensor x = ones({64, 64}), images = ones({4, 16, 12, 12});
  switch (kind % 6) {
    case 0: (void)matmul(x, x); break;
    case 1: (void)matmul(ones({1, 64}), x); break;
    case 2: (void)matmul(x.to(DType::bf16), x.to(DType::bf16)); break;
    case 3: (void)conv2d(images, ones({16, 16, 3, 3})); break;
    case 4: {
      LSTM lstm(16, 16);
      (void)lstm(ones({8, 32, 16}));
      break;
    }
    default: {
      Sequential net(Conv2d(16, 4, 3), ReLU(), Flatten(), Linear(400, 8));
      SGD optimizer(net.parameters(), SGDOptions{.lr = 1e-3, .momentum = 0.9});
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        mse_loss(net(images), zeros({4, 8})).backward();
        optimizer.step();
      }
    }
  }
}

struct Late {
  int kind;
  ~Late() { compute(kind), compute(kind + 1); }
};

// The code of this program with one of the cases below, which are skipped otherwise; 128 + a signal, where that ended it.
int ended(const std::string& test_case) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const int status = std::system(("'" + self + "' --no-skip -tc='" + test_case + "' >/dev/null 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

[[noreturn]] void leave_while_computing(int first, int last) {
  for (int k = first; k < last; ++k)
    std::thread([k] {
      for (;;) compute(k);
    }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  std::exit(7);
}

}  // namespace

TEST_CASE("child: exit while threads multiply" * doctest::skip()) { leave_while_computing(0, 3); }
TEST_CASE("child: exit while threads convolve and train" * doctest::skip()) { leave_while_computing(3, 6); }
TEST_CASE("child: static objects compute when they are destroyed" * doctest::skip()) {
  static Late first{0};
  for (int k = 0; k < 6; ++k) compute(k);
  static Late second{2}, third{4};
  std::exit(7);
}
TEST_CASE("child: a static object is the first to compute" * doctest::skip()) {
  static Late all[] = {{0}, {2}, {4}};
  std::exit(7);
}
// A pool that its destructor stops: such threads finish what they do, and the end does not wait for ever.
TEST_CASE("child: a static object joins its thread" * doctest::skip()) {
  struct Pool {
    std::atomic<bool> stop = false;
    std::thread thread;
    ~Pool() {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      stop = true;
      thread.join();
    }
  };
  static Pool pool;
  pool.thread = std::thread([] {
    for (int k = 0; !pool.stop; ++k) compute(k);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  std::exit(7);
}

TEST_CASE("a program ends as it wants to, whatever still computes") {
  for (int round = 0; round < 3; ++round) {
    CHECK(ended("child: exit while threads multiply") == 7);
    CHECK(ended("child: exit while threads convolve and train") == 7);
  }
  CHECK(ended("child: static objects compute when they are destroyed") == 7);
  CHECK(ended("child: a static object is the first to compute") == 7);
  CHECK(ended("child: a static object joins its thread") == 7);
}

TEST_CASE("each thread has its own object, which is deleted at the thread's end and made anew after that") {
  static std::atomic<int> alive = 0;
  struct Counted {
    int uses = 0;
    Counted() { ++alive; }
    ~Counted() { --alive; }
  };
  ++of_this_thread<Counted>().uses;
  CHECK(of_this_thread<Counted>().uses == 1);
  std::thread([] {
    CHECK(of_this_thread<Counted>().uses == 0);
    CHECK(alive == 2);
  }).join();
  CHECK(alive == 1);
  static Counted* last = nullptr;  // nobody else deletes it
  std::thread([] {
    struct User {
      ~User() { last = &of_this_thread<Counted>(); }  // destroyed last, since it was made first
    };
    static thread_local User user;
    (void)user;
    (void)of_this_thread<Counted>();
  }).join();
  CHECK(alive == 2);
  delete last;
}

TEST_CASE("work is allowed before the end, also inside of other work") {
  CHECK_FALSE(process_ends());
  const BeforeEnd outer;
  const BeforeEnd inner;
  CHECK(outer.allowed());
  CHECK(inner.allowed());
}
