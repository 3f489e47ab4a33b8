// SPDX-License-Identifier: Apache-2.0
// The caching allocator of the CPU.
//
// Fresh pages cost more than the arithmetic on them (a 128 MB relu takes 7.8 times as long into fresh memory), so released blocks
// stay in lists by size class and are reused newest first. Large blocks start at staggered addresses: if arrays have equal
// addresses modulo 4096, the CPU mistakes them for one another, which slows an optimizer step by up to 4.5 times.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/fork_mutex.h"
#include "framework/base/sanitizers.h"
#include "framework/base/text_stream.h"
#include "framework/tensor/counting_allocator.h"
#include "framework/tensor/host_blocks.h"
#include "framework/tensor/memory.h"

// Forbids access to memory under the address sanitizer; does nothing without it.
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(from, bytes) ((void)(from), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(from, bytes) ((void)(from), (void)(bytes))
#endif

namespace halfstep {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kLarge = size_t(1) << 16;  // size from which blocks start at staggered addresses
constexpr size_t kColours = 61;             // number of different starts, kAlign apart: nearly all of a page of 4096 bytes
constexpr size_t kColourStep = 5;           // distance of successive blocks' starts; has no common divisor with kColours

class HostAllocator final : public CountingAllocator {
 public:
  void* allocate(size_t bytes, MemoryTag tag) override {
    const size_t size = host_block_size(bytes);
    const std::lock_guard lock(mutex_);
    void* p = nullptr;
    Block* block = nullptr;
    if (auto it = free_.find(size); it != free_.end() && !it->second.empty()) {
      p = it->second.back();
      it->second.pop_back();
      block = &blocks_[p];
      block->tag = tag;
    } else {
      p = from_system(size, tag);
      if (!p) {
        release_cached();
        p = from_system(size, tag);
      }
      if (!p) out_of_memory(bytes);
      block = &blocks_[p];
    }
    ASAN_UNPOISON_MEMORY_REGION(p, bytes);  // allows exactly the requested bytes
#ifdef HALFSTEP_ADDRESS_SANITIZER
    constexpr size_t kMostFilled = 1 << 20;              // bytes, so that large blocks do not take long
    std::memset(p, 0xff, std::min(bytes, kMostFilled));  // NaN, -1 or invalid bools, to expose reads of unwritten memory
#endif
    count(*block);
    return p;
  }

  void release(void* p) noexcept override {
    const std::lock_guard lock(mutex_);
    const Block& b = blocks_.find(p)->second;
    discount(b);
    free_[b.bytes].push_back(p);
    ASAN_POISON_MEMORY_REGION(p, b.bytes);
  }

  void empty_cache() override {
    const std::lock_guard lock(mutex_);
    release_cached();
  }

  bool has(const void* p) const {
    const std::lock_guard lock(mutex_);
    return blocks_.count(const_cast<void*>(p)) > 0;
  }
  void limit(size_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
  }

 private:
  // Takes a block from the system and adds it to blocks_; null if that fails or exceeds the limit.
  void* from_system(size_t size, MemoryTag tag) {
    if (limit_ > 0 && (size > limit_ || stats_.reserved > limit_ - size)) return nullptr;
    const size_t shift = size >= kLarge ? kAlign * (kColourStep * colour_++ % kColours) : 0;
    void* base = std::aligned_alloc(kAlign, size + shift);
    if (!base) return nullptr;
    void* p = static_cast<char*>(base) + shift;
    ASAN_POISON_MEMORY_REGION(base, size + shift);
    blocks_[p] = {base, size, tag};
    stats_.reserved += size;
    return p;
  }

  void release_cached() {
    for (auto& [size, list] : free_) {
      for (void* p : list) {
        const Block& b = blocks_[p];
        ASAN_UNPOISON_MEMORY_REGION(b.base, static_cast<char*>(p) - static_cast<char*>(b.base) + size);
        std::free(b.base);
        blocks_.erase(p);
        stats_.reserved -= size;
      }
      list.clear();
    }
  }

  [[noreturn]] void out_of_memory(size_t bytes) const {
    TextWriter by_tag;
    for (int i = 0; i < kMemoryTagCount; ++i)
      by_tag << (i ? ", " : "") << name(MemoryTag(i)) << ' ' << stats_.live_by_tag[size_t(i)];
    fail<MemoryError>("memory", "cpu: cannot allocate ", bytes, " bytes; ", stats_.live, " are live (", by_tag.str(), ")",
                      Help{"use a smaller batch or model"});
  }

  // blocks_ has every block, live or cached; these are the cached ones.
  std::unordered_map<size_t, std::vector<void*>> free_;  // by size class, newest last
  size_t colour_ = 0;                                    // number of large blocks taken so far
  size_t limit_ = 0;                                     // bytes; 0: none
};

// Never destroyed: tensors in static variables may outlive any static allocator.
HostAllocator* instance() {
  static auto* host = new HostAllocator;
  return host;
}

}  // namespace

// Rounds up. Above 1 KiB that wastes at most 12.5 % of the request, below at most 63 bytes.
size_t host_block_size(size_t bytes) {
  if (bytes <= 1024) return (bytes + kAlign - 1) / kAlign * kAlign;
  size_t octave = 1024;
  while (octave * 2 < bytes) octave *= 2;
  const size_t step = octave / 8;
  return (bytes + step - 1) / step * step;
}

Allocator* host_allocator() { return instance(); }
void limit_host_memory(size_t bytes) { instance()->limit(bytes); }
bool is_host_block(const void* p) { return instance()->has(p); }

}  // namespace halfstep
