// SPDX-License-Identifier: Apache-2.0
// Runs a launch: blocks one after another, a block's threads as fibers that give way at barriers and warp operations.
// A thread that never waits runs on the stack of the one before it, without a switch.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "cuda/gpu.cuh"
#include "tests/emulators/source/fiber.h"
#include "tests/emulators/source/hooks.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emu {

thread_local Where where;
const char *stacks_begin, *stacks_end;
#ifndef HALFSTEP_EMU_RACE
void race_forget(const void*, size_t) {}
void race_release(const void*) {}
void race_acquire(const void*) {}
#endif

namespace {

constexpr unsigned kMaxThreads = 1024;
// No power of two, with which the ends of all stacks would share a few lines of the cache.
constexpr size_t kStackBytes = (256 << 10) + 9 * 64;

enum class State : uint8_t { fresh, ready, at_barrier, in_warp_op, done };
enum class WarpOp : uint8_t { barrier, shuffle, ballot };

struct Thread {
  uint3 index;
  State state;
  int stack = -1;
  Site site = nullptr;  // where it waits
  Vote vote = Vote::none;
  bool predicate = false;
  int result = 0;
  WarpOp op = WarpOp::barrier;
  unsigned mask = 0;
  int source = 0;
  const void* value = nullptr;
  size_t bytes = 0;
  alignas(16) unsigned char received[16];
  bool fenced = false;               // a fence since the last barrier ...
  std::vector<const void*> atomics;  // ... and atomics since then: a release, an acquire
};

std::vector<Thread> threads;
int count, current;  // threads of the block; the running one
std::vector<Fiber> fibers;
std::vector<int> idle_stacks, order;
size_t next_in_order;
uint32_t warp_epochs[kMaxThreads / 32];
uint32_t in_warp_op[kMaxThreads / 32];  // lanes that wait there
int done, at_barrier;                   // threads of the block
const std::function<void()>* body;
bool running;

struct Random {
  using result_type = uint32_t;
  uint64_t state;
  static constexpr uint32_t min() { return 0; }
  static constexpr uint32_t max() { return ~0u; }
  uint32_t operator()() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return uint32_t(state >> 32);
  }
};

template <class T>
void arrange(std::vector<T>& v, size_t n, uint64_t salt) {
  v.resize(n);
  std::iota(v.begin(), v.end(), T(0));
  if (options().order == Order::reverse) std::reverse(v.begin(), v.end());
  Random random{options().seed * 7919 + salt};
  if (options().order == Order::random) std::shuffle(v.begin(), v.end(), random);
}

std::string name(int t) {
  char text[120];
  std::snprintf(text, sizeof text, "block (%u,%u,%u) thread (%u,%u,%u)", blockIdx.x, blockIdx.y, blockIdx.z, threads[t].index.x,
                threads[t].index.y, threads[t].index.z);
  return text;
}

// What lanes exchange is a word or two, for which a call takes longer than the copy.
void copy_words(void* to, const void* from, size_t bytes) {
  if (bytes == 4)
    std::memcpy(to, from, 4);
  else if (bytes == 8)
    std::memcpy(to, from, 8);
  else
    std::memcpy(to, from, bytes);
}

bool same_site(Site a, Site b) { return a == b || std::strcmp(a, b) == 0; }

void become(int t) {
  current = t;
  threadIdx = threads[t].index;
  where.thread = t;
  where.warp_epoch = warp_epochs[t / 32];
}

[[gnu::always_inline]] inline void wait() { fibers[size_t(threads[current].stack)].suspend(); }

// Threads, one after another, until the block has no unstarted one. A function that is called anew for each block: the next launch
// may come from another thread of the host, with a `where` of its own.
[[gnu::noinline]] void run_threads() {
  for (;;) {
    where.in_kernel = true;
    (*body)();
    where.in_kernel = false;
    Thread& me = threads[current];
    me.state = State::done;
    ++done;
    while (next_in_order < order.size() && threads[order[next_in_order]].state != State::fresh) ++next_in_order;
    if (next_in_order == order.size()) return;
    const int next = order[next_in_order++];
    threads[next].stack = me.stack;
    threads[next].state = State::ready;
    become(next);
  }
}

// The function that every stack runs.
void fiber_main() {
  Fiber::entered();
  for (;;) {
    run_threads();
    wait();
  }
}

void add_stacks(int n) {
  static char* memory = nullptr;
  if (!memory) {
    memory = static_cast<char*>(
        mmap(nullptr, kStackBytes * kMaxThreads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory == MAP_FAILED) fail("no memory for the stacks of the threads");
    stacks_begin = memory;
    stacks_end = memory + kStackBytes * kMaxThreads;
  }
  fibers.reserve(kMaxThreads);
  while (int(fibers.size()) < n) fibers.emplace_back(memory + kStackBytes * fibers.size(), kStackBytes, fiber_main);
}

// Every thread waits at a barrier or is done.
void pass_barrier() {
  int first = -1, votes = 0, waiting = 0;
  for (int t = 0; t < count; ++t) {
    if (threads[t].state != State::at_barrier) continue;
    if (first < 0) first = t;
    if (!same_site(threads[t].site, threads[first].site)) {
      fail("divergent barrier: %s waits at %s, %s at %s", name(first).c_str(), threads[first].site, name(t).c_str(),
           threads[t].site);
    }
    ++waiting;
    votes += threads[t].predicate;
  }
  for (int t = 0; t < count; ++t) {
    Thread& thread = threads[t];
    if (thread.state == State::done) {
      fail("%s has returned, but %s waits at the barrier %s", name(t).c_str(), name(first).c_str(), threads[first].site);
    }
    thread.result = thread.vote == Vote::count ? votes : thread.vote == Vote::all ? votes == waiting : votes > 0;
    thread.state = State::ready;
    thread.fenced = false;
    thread.atomics.clear();
  }
  at_barrier = 0;
  ++where.epoch;
}

[[noreturn]] void explain_deadlock() {
  for (int t = 0; t < count; ++t) {
    const Thread& me = threads[t];
    if (me.state != State::in_warp_op) continue;
    for (int l = 0; l < 32; ++l) {
      if (!(me.mask >> l & 1)) continue;
      const int o = t / 32 * 32 + l;
      const Thread& other = threads[o];
      if (other.state == State::in_warp_op && other.mask == me.mask && same_site(other.site, me.site)) continue;
      fail("warp operation deadlock: %s waits at %s (mask %08x) for lane %d, which %s%s", name(t).c_str(), me.site, me.mask, l,
           other.state == State::done ? "has returned" : "waits at ", other.state == State::done ? "" : other.site);
    }
  }
  fail("deadlock in block (%u,%u,%u)", blockIdx.x, blockIdx.y, blockIdx.z);
}

// Whether a warp has threads that could continue. In reverse order it does so before the next warp's turn, as far as a barrier: as
// warps run ahead of each other on a GPU. In the other orders all warps wait for each other at each shuffle.
bool runs_ahead(int first) {
  if (options().order != Order::reverse || first % 32 != 0) return false;
  for (int t = first; t < std::min(count, first + 32); ++t) {
    if (threads[t].state == State::ready) return true;
  }
  return false;
}

void run_block(size_t shared) {
  for (int t = 0; t < count; ++t) {
    threads[t].state = State::fresh;
    threads[t].fenced = false;
    threads[t].atomics.clear();
  }
  idle_stacks.resize(size_t(count));
  std::iota(idle_stacks.rbegin(), idle_stacks.rend(), 0);
  std::fill(std::begin(warp_epochs), std::end(warp_epochs), 0);
  std::fill(std::begin(in_warp_op), std::end(in_warp_op), 0);
  done = at_barrier = 0;
  where.epoch = 0;
  begin_shared_memory(shared);

  arrange(order, size_t(count), where.block * 131);
  for (size_t round = 1;; ++round) {
    next_in_order = 0;
    bool progress = false;
    for (size_t k = 0; k < order.size(); ++k) {
      Thread& thread = threads[order[k]];
      if (thread.state == State::fresh) {
        thread.stack = idle_stacks.back();
        idle_stacks.pop_back();
        thread.state = State::ready;
      }
      if (thread.state != State::ready) continue;
      progress = true;
      const int stack = thread.stack;
      become(order[k]);
      fibers[size_t(stack)].resume();
      if (threads[current].state == State::done) idle_stacks.push_back(stack);
      if (runs_ahead(order[k])) k = size_t(std::max(0, count - 32 - order[k])) - 1;  // back to its last thread
    }
    if (done == count) break;
    if (at_barrier && done + at_barrier == count)
      pass_barrier();
    else if (!progress)
      explain_deadlock();
    // Another order in each round: the shuffled one from another of its places.
    if (options().order == Order::random) {
      std::rotate(order.begin(), order.begin() + ptrdiff_t(round * 37 % order.size()), order.end());
    }
  }
  end_shared_memory();
}

// The last lane of the mask to arrive exchanges for all of them and continues.
void meet(Site site, unsigned mask, WarpOp op, int source, const void* value, size_t bytes, bool predicate) {
  Thread& me = threads[current];
  const int warp = current / 32 * 32;
  if (!(mask >> (current % 32) & 1))
    fail("%s is not in the mask %08x of its warp operation at %s", name(current).c_str(), mask, site);
  me.site = site;
  me.mask = mask;
  me.op = op;
  me.source = source;
  me.value = value;
  me.bytes = bytes;
  me.predicate = predicate;
  me.state = State::in_warp_op;
  uint32_t& waiting = in_warp_op[current / 32];
  waiting |= 1u << (current % 32);
  if (const int last = 31 - __builtin_clz(mask); warp + last >= count) {
    fail("%s: the mask %08x at %s names lane %d, beyond the block's last thread", name(current).c_str(), mask, site, last);
  }
  if ((waiting & mask) != mask) return wait();
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    const Thread& other = threads[warp + l];
    if (other.state != State::in_warp_op || other.mask != mask || other.op != op || !same_site(other.site, site)) return wait();
  }
  waiting &= ~mask;
  unsigned ballot = 0;
  for (int l = 0; l < 32; ++l) {
    if (mask >> l & 1) ballot |= unsigned(threads[warp + l].predicate) << l;
  }
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    Thread& other = threads[warp + l];
    other.result = int(ballot);
    other.state = State::ready;
    if (op != WarpOp::shuffle) continue;
    const int from = other.source & 31;
    if (!(mask >> from & 1))
      fail("%s: the shuffle at %s reads lane %d, which is not in the mask %08x", name(warp + l).c_str(), site, from, mask);
    copy_words(other.received, threads[warp + from].value, bytes);
  }
}

}  // namespace

void run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread) {
  const uint64_t size = uint64_t(block.x) * block.y * block.z;
  if (running) fail("a launch inside a launch");
  if (size == 0 || size > kMaxThreads || block.z > 64) fail("illegal block (%u,%u,%u)", block.x, block.y, block.z);
  if (!grid.x || !grid.y || !grid.z || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) {
    fail("illegal grid (%u,%u,%u)", grid.x, grid.y, grid.z);
  }

  running = true;
  static uint32_t launches = 0;
  where.launch = ++launches;
  count = int(size);
  if (int(threads.size()) < count) threads.resize(size);
  for (unsigned t = 0; t < size; ++t) threads[t].index = {t % block.x, t / block.x % block.y, t / (block.x * block.y)};
  add_stacks(count);
  body = &thread;
  gridDim = grid;
  blockDim = block;
  const OpenDeviceMemory open;
  std::vector<uint32_t> blocks;
  arrange(blocks, size_t(grid.x) * grid.y * grid.z, 0);
  for (uint32_t b : blocks) {
    blockIdx = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
    where.block = b;
    run_block(shared_bytes);
  }
  running = false;
}

int block_barrier(Site site, Vote vote, bool predicate) {
  InsideEmulator inside;
  const int self = current;
  Thread& me = threads[self];
  me.site = site;
  me.vote = vote;
  me.predicate = predicate;
  me.state = State::at_barrier;
  ++at_barrier;
  wait();
  return threads[self].result;
}

void warp_barrier(Site site, unsigned mask) {
  InsideEmulator inside;
  const int warp = current / 32;
  const uint32_t before = warp_epochs[warp];
  meet(site, mask, WarpOp::barrier, 0, nullptr, 0, false);
  if (warp_epochs[warp] == before) ++warp_epochs[warp];
  where.warp_epoch = warp_epochs[warp];
}

unsigned warp_ballot(Site site, unsigned mask, bool predicate) {
  InsideEmulator inside;
  const int self = current;
  meet(site, mask, WarpOp::ballot, 0, nullptr, 0, predicate);
  return unsigned(threads[self].result);
}

void warp_shuffle(Site site, unsigned mask, int source_lane, void* value, size_t bytes) {
  InsideEmulator inside;
  const int self = current;
  if (bytes > sizeof threads[self].received) fail("a shuffle of %zu bytes at %s", bytes, site);
  meet(site, mask, WarpOp::shuffle, source_lane, value, bytes, false);
  copy_words(value, threads[self].received, bytes);
}

int lane() { return current % 32; }

// fence, then atomic: publishes what the block did before. atomic, then fence: sees what was published there.
void thread_fence() {
  InsideEmulator inside;
  threads[current].fenced = true;
  for (const void* p : threads[current].atomics) race_acquire(p);
}
void note_atomic(const void* p) {
  InsideEmulator inside;
  if (threads[current].fenced) race_release(p);
  threads[current].atomics.push_back(p);
}

}  // namespace emu
