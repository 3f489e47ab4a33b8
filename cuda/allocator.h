// SPDX-License-Identifier: Apache-2.0
// The caching allocator of a GPU.
//
// Device memory is taken in segments and handed out in blocks. A released block is free for the next caller at once, while
// kernels that use it may still be queued: all work runs on one stream, so a later use is behind them in order. Sizes and
// counts follow PyTorch's allocator, so that peaks can be compared: requests are rounded up to 512 bytes; up to 1 MiB they are
// served from 2 MiB segments, up to 10 MiB from 20 MiB segments, above from segments of their own rounded to 2 MiB; the
// smallest free block that fits is split, neighbours are joined on release.
//
// A recording (Backend::begin_recording) takes its memory from a pool of its own: its addresses must not change.
// Other threads' tensors stay out of it, since a replay writes to all of it. From the recording's end to its release, the most
// that the pool ever had live counts as live. While one is under way nothing is given back to the device.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

#include "framework/tensor/memory.h"

namespace halfstep::cuda {

class CudaAllocator final : public Allocator {
 public:
  CudaAllocator();
  ~CudaAllocator() override;

  void* allocate(size_t bytes, MemoryTag tag) override;
  size_t available() const;  // bytes that are free on the device, or cached here
  void release(void* p) noexcept override;
  void retag(void* p, MemoryTag tag) noexcept override;
  MemoryStats stats() const override;
  void reset_peak() override;
  void empty_cache() override;

  class Pool;
  // Until end_pool, this thread's allocations come from a new pool, which lives until release_pool and the release of its last
  // block. Where it needs more than the device has, they throw RecordingError.
  Pool* begin_pool();
  void end_pool();
  void release_pool(Pool* pool) noexcept;  // nothing that is queued may use it

 private:
  struct Block;
  Block* take(Pool& pool, size_t size);
  Block* grow(Pool& pool, size_t bytes, bool small);
  void split(Block* block, size_t size);
  void give_back(Block* block) noexcept;
  void free_segments(Pool& pool) noexcept;
  void destroy_unused() noexcept;
  void count(MemoryTag tag, size_t bytes);
  [[noreturn]] void out_of_memory(size_t bytes) const;

  mutable std::mutex mutex_;
  std::unique_ptr<Pool> common_;
  std::set<std::unique_ptr<Pool>> pools_;  // of recordings
  Pool* recorded_ = nullptr;               // between begin_pool and end_pool
  std::thread::id recorder_;               // ... whose thread this is
  std::unordered_map<void*, Block*> live_;
  MemoryStats stats_;
};

}  // namespace halfstep::cuda
