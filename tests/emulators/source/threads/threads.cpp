// SPDX-License-Identifier: Apache-2.0
// Memory is ordered as on the device: a relaxed atomic orders nothing by itself. After a fence it publishes what its thread wrote
// before, and a fence after it takes over what other threads published there. The sanitizer learns that by its functions, and
// reports what a missing fence leaves unordered. HALFSTEP_NO_FENCE=1: fences do nothing, to see that it does.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/gpu.cuh"
#include "framework/base/check.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}

namespace emu {

thread_local Place place;

namespace {

struct Barrier {
  explicit Barrier(unsigned threads) { pthread_barrier_init(&barrier, nullptr, threads); }
  ~Barrier() { pthread_barrier_destroy(&barrier); }
  Barrier(const Barrier&) = delete;
  void wait() { pthread_barrier_wait(&barrier); }
  pthread_barrier_t barrier;
};

struct Block {
  explicit Block(unsigned threads) : all(threads), exchanged(threads) {
    for (unsigned i = 0; i < threads / 32; ++i) warps.push_back(std::make_unique<Barrier>(32));
  }
  Barrier all;
  std::vector<std::unique_ptr<Barrier>> warps;
  std::array<std::atomic<int>, 3> votes{};  // of one barrier after another
  std::vector<std::array<unsigned char, 16>> exchanged;
  std::mutex mutex;
  std::map<const void*, std::vector<std::max_align_t>> shared;  // arrays, by their keys
};

struct Thread {
  Block* block = nullptr;
  int votes = 0;
  bool fenced = false;               // since the last barrier
  std::vector<const void*> atomics;  // since then
};
thread_local Thread self;

void forget() {
  self.fenced = false;
  self.atomics.clear();
}
Barrier& warp() { return *self.block->warps[place.thread.x / 32]; }

struct Start {
  Block* block;
  Place place;
  const std::function<void()>* body;
};
void* begin(void* start) {
  const Start& s = *static_cast<Start*>(start);
  self = {.block = s.block};
  place = s.place;
  (*s.body)();
  return nullptr;
}

}  // namespace

void run(dim3 grid, dim3 block, size_t, const std::function<void()>& thread) {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<Start> starts;
  for (unsigned b = 0; b < grid.x; ++b) {
    blocks.push_back(std::make_unique<Block>(block.x));
    for (unsigned t = 0; t < block.x; ++t) starts.push_back({blocks.back().get(), {{t, 0, 0}, {b, 0, 0}, block, grid}, &thread});
  }
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 << 10);
  std::vector<pthread_t> threads(starts.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    if (pthread_create(&threads[i], &small, begin, &starts[i])) fail("no more than %zu threads can be started", i);
  }
  for (const pthread_t t : threads) pthread_join(t, nullptr);
  pthread_attr_destroy(&small);
}
cudaError_t submit(cudaStream_t, Task task, bool) {
  task.work();
  return cudaSuccess;
}

int block_barrier(Site, Vote vote, bool predicate) {
  forget();
  Block& b = *self.block;
  if (vote == Vote::none) {
    b.all.wait();
    return 0;
  }
  const int turn = self.votes++ % 3;
  b.votes[size_t(turn)] += predicate;
  b.all.wait();
  const int count = b.votes[size_t(turn)];
  b.votes[size_t(turn + 2) % 3] = 0;  // nobody reads it: all have passed the barrier after it
  return vote == Vote::count ? count : vote == Vote::any ? count > 0 : count == int(place.threads.x);
}
void warp_barrier(Site, unsigned) { warp().wait(); }
void warp_shuffle(Site, unsigned mask, int source, void* value, size_t bytes) {
  if (mask != ~0u) fail("a warp operation of some lanes alone");
  auto& all = self.block->exchanged;
  const size_t mine = place.thread.x;
  std::memcpy(all[mine].data(), value, bytes);
  warp().wait();
  std::memcpy(value, all[mine / 32 * 32 + size_t(source)].data(), bytes);
  warp().wait();
}
unsigned warp_ballot(Site site, unsigned mask, bool predicate) {
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) {
    int one = predicate;
    warp_shuffle(site, mask, i, &one, sizeof one);
    bits |= unsigned(one) << i;
  }
  return bits;
}
int lane() { return int(place.thread.x) % 32; }

void thread_fence() {
  static const bool absent = std::getenv("HALFSTEP_NO_FENCE") != nullptr;
  if (absent) return;
  for (const void* p : self.atomics) __tsan_acquire(const_cast<void*>(p));
  self.fenced = true;
}
void note_atomic(const void* p) {
  if (self.fenced) __tsan_release(const_cast<void*>(p));
  if (std::find(self.atomics.begin(), self.atomics.end(), p) == self.atomics.end()) self.atomics.push_back(p);
  sched_yield();  // threads that wait for each other are many, and processors few
}
void* shared_array(const void* key, size_t bytes) {
  const std::lock_guard lock(self.block->mutex);
  auto& memory = self.block->shared[key];
  if (memory.empty()) memory.resize(bytes / sizeof(std::max_align_t) + 1);
  return memory.data();
}
void* dynamic_shared(size_t) { fail("dynamic shared memory"); }

}  // namespace emu

// What the kernels' launchers ask of the backend.
namespace halfstep::cuda {

thread_local LaunchWatcher* launch_watcher = nullptr;
void check_launch(cudaError_t error) { check<DeviceError>(error == cudaSuccess, "launch", "failed"); }
int64_t resident_threads() { return 1024; }

}  // namespace halfstep::cuda

extern "C" cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t) {
  std::memset(p, value, bytes);
  return cudaSuccess;
}
