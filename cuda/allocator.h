// SPDX-License-Identifier: Apache-2.0
// The caching allocator of a GPU.
//
// Takes device memory in segments and hands it out in blocks. A released block may be reused at once, although kernels that use it
// may still be queued: all work runs on one stream, so the later use comes after them. Sizes and counts follow PyTorch's
// allocator, so that peaks can be compared: requests are rounded up to 512 bytes; up to 1 MiB they are served from 2 MiB segments,
// below 10 MiB from 20 MiB segments, and from there on from their own segments, rounded to 2 MiB. The smallest free block that fits
// is split; neighbours are joined on release.
//
// A recording (Backend::begin_recording) takes its memory from its own pool, because its addresses must not change. Other threads'
// tensors stay out of it, because a replay writes to all of it. From the recording's end to its release, the pool's peak counts as
// live. During a recording, nothing is returned to the device.
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
  size_t available() const;  // bytes free on the device, or cached here
  void release(void* p) noexcept override;
  void retag(void* p, MemoryTag tag) noexcept override;
  MemoryStats stats() const override;
  void reset_peak() override;
  void empty_cache() override;

  class Pool;
  // Makes this thread's allocations come from a new pool until end_pool. The pool lives until release_pool and the release of its
  // last block. Allocations throw RecordingError if they need more than the device has.
  Pool* begin_pool();
  void end_pool();
  void release_pool(Pool* pool) noexcept;  // no queued work may use it

 private:
  struct Block;
  Block* take(Pool& pool, size_t size);
  Block* grow(Pool& pool, size_t bytes, bool small);
  void split(Block* block, size_t size);
  void give_back(Block* block) noexcept;
  void free_segments(Pool& pool) noexcept;
  void destroy_unused() noexcept;
  void add_live(MemoryTag tag, size_t bytes);
  [[noreturn]] void out_of_memory(size_t bytes) const;

  mutable std::mutex mutex_;
  std::unique_ptr<Pool> common_;
  std::set<std::unique_ptr<Pool>> pools_;  // pools of recordings
  Pool* recording_pool_ = nullptr;         // pool between begin_pool and end_pool
  std::thread::id recording_thread_;       // thread that called begin_pool
  std::unordered_map<void*, Block*> live_;
  MemoryStats stats_;
};

}  // namespace halfstep::cuda
