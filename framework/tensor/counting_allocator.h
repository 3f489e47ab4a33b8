// SPDX-License-Identifier: Apache-2.0
// The part of an allocator that counts its blocks.
#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "framework/base/fork_mutex.h"
#include "framework/tensor/memory.h"

namespace halfstep {

class CountingAllocator : public Allocator {
 public:
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
    set_peak_to_live();
  }

 protected:
  struct Block {
    void* base;    // the system's address
    size_t bytes;  // rounded
    MemoryTag tag;
  };
  // Add a block to the statistics, or subtract it. Call both with `mutex_` locked.
  void count(const Block& block) {
    stats_.live += block.bytes;
    stats_.live_by_tag[size_t(block.tag)] += block.bytes;
    ++stats_.allocations;
    if (stats_.live > stats_.peak) set_peak_to_live();
  }
  void discount(const Block& block) {
    stats_.live -= block.bytes;
    stats_.live_by_tag[size_t(block.tag)] -= block.bytes;
  }

  mutable ForkMutex mutex_;
  std::unordered_map<void*, Block> blocks_;  // by the address that allocate() returned
  MemoryStats stats_;

 private:
  void set_peak_to_live() {
    stats_.peak = stats_.live;
    stats_.peak_by_tag = stats_.live_by_tag;
  }
};

}  // namespace halfstep
