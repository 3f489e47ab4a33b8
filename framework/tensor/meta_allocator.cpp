// SPDX-License-Identifier: Apache-2.0
// Memory statistics of the device meta: sizes and purposes are counted as the planned device's allocator counts them, no memory is
// taken.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "framework/base/check.h"
#include "framework/base/fork_mutex.h"
#include "framework/tensor/memory.h"

namespace halfstep {
namespace {

// Addresses that no process can read or write, so that code which tries ends at once. None is given twice.
constexpr uintptr_t kFirstAddress = uintptr_t(1) << 62;
constexpr size_t kMost = size_t(1) << 60;

std::atomic<Device::Type> planned = Device::Type::cpu;

size_t block_size(size_t bytes) {
  if (bytes >= kMost) return bytes;
  return planned_device() == Device::Type::cuda ? device_block_size(bytes) : host_block_size(bytes);
}

class MetaAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes, MemoryTag tag) override {
    const size_t size = block_size(bytes);
    const std::lock_guard lock(mutex_);
    check<MemoryError>(size < kMost && next_ + size > next_, "memory", "meta: cannot count ", bytes, " bytes more; ", stats_.live,
                       " are live");
    void* const p = reinterpret_cast<void*>(next_);
    next_ += size;
    blocks_[p] = {size, tag};
    stats_.live += size;
    stats_.live_by_tag[size_t(tag)] += size;
    stats_.reserved = stats_.live;
    ++stats_.allocations;
    if (stats_.live > stats_.peak) note_peak();
    return p;
  }

  void release(void* p) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto it = blocks_.find(p);
    stats_.live -= it->second.bytes;
    stats_.live_by_tag[size_t(it->second.tag)] -= it->second.bytes;
    stats_.reserved = stats_.live;
    blocks_.erase(it);
  }

  void retag(void* p, MemoryTag tag) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto it = blocks_.find(p);
    if (it == blocks_.end()) return;
    stats_.live_by_tag[size_t(it->second.tag)] -= it->second.bytes;
    stats_.live_by_tag[size_t(tag)] += it->second.bytes;
    it->second.tag = tag;
  }

  MemoryStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    note_peak();
  }
  void empty_cache() override {}

 private:
  struct Block {
    size_t bytes;
    MemoryTag tag;
  };
  void note_peak() {
    stats_.peak = stats_.live;
    stats_.peak_by_tag = stats_.live_by_tag;
  }

  mutable ForkMutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  uintptr_t next_ = kFirstAddress;
  MemoryStats stats_;
};

}  // namespace

size_t device_block_size(size_t bytes) {
  constexpr size_t kRound = 512;
  return std::max(kRound, (bytes + kRound - 1) / kRound * kRound);
}

Device::Type planned_device() { return planned.load(std::memory_order_relaxed); }
PlanFor::PlanFor(Device::Type type) : saved_(planned.exchange(type)) {}
PlanFor::~PlanFor() { planned = saved_; }

// Never destroyed: tensors in static variables may outlive any static allocator.
Allocator* meta_allocator() {
  static auto* const made = new MetaAllocator;
  return made;
}

}  // namespace halfstep
