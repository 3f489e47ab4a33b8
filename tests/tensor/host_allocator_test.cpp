// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/sanitizers.h"
#include "framework/tensor/memory.h"

#if defined(HALFSTEP_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

using namespace halfstep;

namespace {

Allocator& host() { return allocator(Device::cpu); }

// Statistics relative to a moment: other tests in this program may hold memory.
struct Statistics {
  MemoryStats start = host().stats();
  size_t live() const { return host().stats().live - start.live; }
  size_t live(MemoryTag t) const { return host().stats().live_by_tag[size_t(t)] - start.live_by_tag[size_t(t)]; }
};

}  // namespace

TEST_CASE("blocks are aligned, distinct and writable") {
  std::vector<void*> blocks;
  std::set<void*> seen;
  for (size_t bytes : {1, 63, 64, 65, 1000, 1024, 1025, 70000, 1 << 20}) {
    void* p = host().allocate(bytes, MemoryTag::activations);
    CHECK(reinterpret_cast<uintptr_t>(p) % 64 == 0);
    CHECK(seen.insert(p).second);
    std::memset(p, 0xff, bytes);
    blocks.push_back(p);
  }
  for (void* p : blocks) host().release(p);
}

TEST_CASE("a released block is handed out again, newest first") {
  void* a = host().allocate(5000, MemoryTag::activations);
  void* b = host().allocate(5000, MemoryTag::activations);
  host().release(a);
  host().release(b);
  const size_t reserved = host().stats().reserved;
  CHECK(host().allocate(4990, MemoryTag::gradients) == b);
  CHECK(host().allocate(5001, MemoryTag::gradients) == a);
  CHECK(host().stats().reserved == reserved);
  host().release(a);
  host().release(b);
}

TEST_CASE("the statistics count rounded sizes by tag") {
  const Statistics counted;
  void* p = host().allocate(1, MemoryTag::parameters);
  CHECK(counted.live() == 64);
  CHECK(counted.live(MemoryTag::parameters) == 64);
  void* q = host().allocate(1100, MemoryTag::optimizer);  // eight steps an octave: 1152
  CHECK(counted.live(MemoryTag::optimizer) == 1152);
  host().retag(q, MemoryTag::data);
  CHECK(counted.live(MemoryTag::optimizer) == 0);
  CHECK(counted.live(MemoryTag::data) == 1152);
  CHECK(counted.live() == 1216);
  host().release(q);
  CHECK(counted.live(MemoryTag::data) == 0);
  host().release(p);
  CHECK(counted.live() == 0);
  CHECK(host().stats().allocations == counted.start.allocations + 2);
  int outside = 0;
  host().retag(&outside, MemoryTag::data);  // not the allocator's: ignored
}

TEST_CASE("at most an eighth is wasted") {
  for (size_t bytes = 1025; bytes < (size_t(1) << 22); bytes = bytes * 5 / 4 + 1) {
    const Statistics counted;
    void* p = host().allocate(bytes, MemoryTag::activations);
    CHECK(counted.live() >= bytes);
    CHECK(double(counted.live()) <= 1.125 * double(bytes) + 64);
    host().release(p);
  }
}

TEST_CASE("the peak is remembered with its tags until it is reset") {
  host().reset_peak();
  const MemoryStats before = host().stats();
  CHECK(before.peak == before.live);
  void* a = host().allocate(1 << 20, MemoryTag::gradients);
  void* b = host().allocate(1 << 20, MemoryTag::workspace);
  host().release(b);
  host().release(a);
  const MemoryStats after = host().stats();
  CHECK(after.peak == before.live + (2 << 20));
  CHECK(after.peak_by_tag[size_t(MemoryTag::workspace)] == before.live_by_tag[size_t(MemoryTag::workspace)] + (1 << 20));
  size_t sum = 0;
  for (size_t v : after.peak_by_tag) sum += v;
  CHECK(sum == after.peak);
  host().reset_peak();
  CHECK(host().stats().peak == host().stats().live);
}

TEST_CASE("large blocks start at different offsets within a page") {
  std::vector<void*> blocks;
  std::set<uintptr_t> offsets;
  host().empty_cache();
  for (int i = 0; i < 16; ++i) {
    blocks.push_back(host().allocate(size_t(1) << 21, MemoryTag::activations));
    offsets.insert(reinterpret_cast<uintptr_t>(blocks.back()) % 4096);
  }
  CHECK(offsets.size() >= 12);
  for (void* p : blocks) host().release(p);
}

TEST_CASE("empty_cache gives back what is not live") {
  void* p = host().allocate(1 << 20, MemoryTag::activations);
  host().release(host().allocate(3 << 20, MemoryTag::activations));
  host().empty_cache();
  CHECK(host().stats().reserved == host().stats().live);
  std::memset(p, 1, 1 << 20);
  host().release(p);
}

TEST_CASE("an impossible size fails with the statistics") {
  bool thrown = false;
  try {
    host().allocate(size_t(1) << 60, MemoryTag::activations);
  } catch (const MemoryError& e) {
    thrown = true;
    const std::string text = e.what();
    CHECK(text.find("[memory] cpu: cannot allocate 1152921504606846976 bytes; ") == 0);
    CHECK(text.find("(activations ") != std::string::npos);
    CHECK(text.find("\nhelp: use a smaller batch or model") != std::string::npos);
  }
  CHECK(thrown);
}

TEST_CASE("several threads at once") {
  const Statistics counted;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) {
        const size_t bytes = size_t(64 + (i * 37 + t * 11) % 5000);
        char* p = static_cast<char*>(host().allocate(bytes, MemoryTag::data));
        std::memset(p, t, bytes);
        bool mine = true;
        for (size_t k = 0; k < bytes; ++k) mine = mine && p[k] == char(t);
        if (!mine) std::terminate();
        host().release(p);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(counted.live() == 0);
}

TEST_CASE("memory scopes nest, and an absent device has no allocator") {
  CHECK(MemoryScope::current() == MemoryTag::activations);
  {
    const MemoryScope outer(MemoryTag::parameters);
    const MemoryScope inner(MemoryTag::workspace);
    CHECK(MemoryScope::current() == MemoryTag::workspace);
  }
  CHECK(MemoryScope::current() == MemoryTag::activations);
  CHECK(std::string(name(MemoryTag::shadows)) == "shadows");
}

#if defined(HALFSTEP_ADDRESS_SANITIZER)
TEST_CASE("the address sanitizer sees who leaves a block, and who uses one that was released") {
  for (size_t bytes : {1, 100, 1100, 70000}) {
    CAPTURE(bytes);
    char* p = static_cast<char*>(host().allocate(bytes, MemoryTag::activations));
    CHECK(__asan_region_is_poisoned(p, bytes) == nullptr);
    CHECK(__asan_address_is_poisoned(p - 1));
    CHECK(__asan_address_is_poisoned(p + bytes));
    host().release(p);
    CHECK(__asan_address_is_poisoned(p));
    CHECK(__asan_address_is_poisoned(p + bytes - 1));
    CHECK(host().allocate(bytes, MemoryTag::activations) == p);
    CHECK(__asan_region_is_poisoned(p, bytes) == nullptr);
    host().release(p);
  }
  host().empty_cache();
}
#endif
