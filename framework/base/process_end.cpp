// SPDX-License-Identifier: Apache-2.0
#include "framework/base/process_end.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace halfstep {
namespace {

constexpr auto kLongestWait = std::chrono::seconds(10);
constexpr auto kPause = std::chrono::microseconds(50);
constexpr unsigned kLanes = 16;

// Each thread counts its work (BeforeEnd) in one of the lanes, so that threads rarely write to one cache line.
struct alignas(64) Lane {
  std::atomic<int> open{0};
};
constinit Lane lanes[kLanes];
constinit std::atomic<unsigned> threads{0};
constinit std::atomic<bool> ended{false};
thread_local constinit unsigned own_lane = kLanes;
thread_local constinit int own_open = 0;

Lane& lane() {
  if (own_lane == kLanes) own_lane = threads.fetch_add(1, std::memory_order_relaxed) % kLanes;
  return lanes[own_lane];
}

int open_in_others() {
  int sum = -own_open;  // a signal's handler may call exit() inside of such work
  for (const Lane& l : lanes) sum += l.open;
  return sum;
}

template <class F>
void wait_until(const F& condition) {
  const auto until = std::chrono::steady_clock::now() + kLongestWait;
  while (!condition() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(kPause);
}

void wait_for_others() {
  ended = true;
  wait_until([] { return open_in_others() <= 0; });
}

// Waits for first uses when the main thread ends: exit() destroys the objects of its thread before any static one.
struct EndOfMain {
  bool is_made = false;
  ~EndOfMain() {
    wait_until([] { return NoFork::count() == 0; });
  }
};
thread_local EndOfMain end_of_main;
[[maybe_unused]] const bool made_in_main = end_of_main.is_made = true;  // its first use makes it; Clang does not count its address

// The child of a fork has none of the other threads.
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] {
  for (Lane& l : lanes) l.open = 0;
  lane().open = own_open;
});

}  // namespace

// Here and in wait_for_others each side first writes its variable and then reads that of the other. All threads see these
// sequentially consistent operations in one order, so at least one side sees the other's write.
BeforeEnd::BeforeEnd() {
  lane().open.fetch_add(1);
  ++own_open;
  allowed_ = !ended;
}
BeforeEnd::~BeforeEnd() {
  --own_open;
  lane().open.fetch_sub(1);
}

bool process_ends() { return ended; }

FirstUse::FirstUse(bool is_first) {
  if (is_first) no_fork_.emplace();
}

void FirstUse::watch_end_after(std::string_view code) {
  static constinit ForkMutex mutex;
  const std::lock_guard lock(mutex);
  static auto& seen = *new std::set<std::string, std::less<>>;
  if (seen.emplace(code).second) std::atexit(&wait_for_others);
}

}  // namespace halfstep
