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

#include "framework/base/fork_mutex.h"

namespace halfstep {
namespace {

constexpr auto kLongest = std::chrono::seconds(10);
constexpr unsigned kLanes = 16;

// Threads count in lanes of their own, so that they rarely write to one cache line.
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
  int sum = -own_open;  // exit() may be called inside of such work, by a signal's handler
  for (const Lane& l : lanes) sum += l.open;
  return sum;
}

constinit std::atomic<int> first_uses{0};

template <class F>
void wait_until(const F& true_at_last) {
  const auto until = std::chrono::steady_clock::now() + kLongest;
  while (!true_at_last() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void wait_for_others() {
  ended = true;
  wait_until([] { return open_in_others() <= 0; });
}

// exit() begins with the objects of its thread, before it destroys any static one.
struct EndOfMain {
  ~EndOfMain() {
    wait_until([] { return first_uses == 0; });
  }
};
thread_local EndOfMain end_of_main;
[[maybe_unused]] const EndOfMain* const made_in_main = &end_of_main;

// The child of a fork has none of the other threads.
[[maybe_unused]] const int hears_of_forks = pthread_atfork(nullptr, nullptr, [] {
  for (Lane& l : lanes) l.open = 0;
  lane().open = own_open;
  first_uses = 0;
});

}  // namespace

// Both sides write first and then read what the other one wrote, in one order for all threads.
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

FirstUse::FirstUse(bool is_first) : is_first_(is_first) {
  if (is_first_) ++first_uses;
}
FirstUse::~FirstUse() {
  if (is_first_) --first_uses;
}

void FirstUse::watch_end_after(std::string_view code) {
  static auto& mutex = *new ForkMutex;
  static auto& seen = *new std::set<std::string, std::less<>>;
  const std::lock_guard lock(mutex);
  if (seen.emplace(code).second) std::atexit(&wait_for_others);
}

}  // namespace halfstep
