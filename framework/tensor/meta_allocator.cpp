// SPDX-License-Identifier: Apache-2.0
// Counts memory for the device meta: sizes and purposes as the planned device's allocator counts them, without taking memory.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "framework/base/check.h"
#include "framework/base/fork_mutex.h"
#include "framework/tensor/counting_allocator.h"
#include "framework/tensor/memory.h"

namespace halfstep {
namespace {

// Invalid addresses, so that a program that reads or writes them ends at once. Each is given out once.
constexpr uintptr_t kFirstAddress = uintptr_t(1) << 62;
constexpr size_t kMostBytes = size_t(1) << 60;  // of a block: the addresses must not overflow

std::atomic<Device::Type> planned = Device::Type::cpu;

size_t block_size(size_t bytes) {
  if (bytes >= kMostBytes) return bytes;
  return planned_device() == Device::Type::cuda ? device_block_size(bytes) : host_block_size(bytes);
}

class MetaAllocator final : public CountingAllocator {
 public:
  void* allocate(size_t bytes, MemoryTag tag) override {
    const size_t size = block_size(bytes);
    const std::lock_guard lock(mutex_);
    check<MemoryError>(size < kMostBytes && next_ + size > next_, "memory", "meta: cannot count ", bytes, " bytes more; ",
                       stats_.live, " are live");
    void* const p = reinterpret_cast<void*>(next_);
    next_ += size;
    count(blocks_[p] = {nullptr, size, tag});
    stats_.reserved = stats_.live;
    return p;
  }

  void release(void* p) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto it = blocks_.find(p);
    discount(it->second);
    stats_.reserved = stats_.live;
    blocks_.erase(it);
  }

  void empty_cache() override {}

 private:
  uintptr_t next_ = kFirstAddress;
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
  static auto* const allocator_of_meta = new MetaAllocator;
  return allocator_of_meta;
}

}  // namespace halfstep
