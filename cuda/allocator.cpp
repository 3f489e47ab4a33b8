// SPDX-License-Identifier: Apache-2.0
#include "cuda/allocator.h"

#include <algorithm>
#include <cstdio>

#include "cuda/runtime.h"
#include "framework/base/check.h"
#include "framework/base/number_text.h"
#include "framework/base/text_stream.h"

namespace halfstep::cuda {
namespace {

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr size_t kRound = 512;   // divides the size of every block
constexpr size_t kSmall = kMiB;  // largest request served from small segments
constexpr size_t kSmallSegment = 2 * kMiB;
constexpr size_t kMedium = 10 * kMiB;  // smallest request that gets its own segment
constexpr size_t kMediumSegment = 20 * kMiB;

size_t rounded(size_t n, size_t to) { return (n + to - 1) / to * to; }
size_t segment_size(size_t size) {
  return size <= kSmall ? kSmallSegment : size < kMedium ? kMediumSegment : rounded(size, kSmallSegment);
}

std::string in_units(size_t bytes) {
  if (bytes >= 1024 * kMiB) return fixed_text(double(bytes) / double(1024 * kMiB), 2) + " GiB";
  return bytes >= kMiB ? fixed_text(double(bytes) / double(kMiB), 1) + " MiB" : std::to_string(bytes) + " bytes";
}

// Relaxes the capture mode: otherwise CUDA refuses cudaMalloc to a thread that records.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

struct CudaAllocator::Block {
  char* data;
  size_t size;
  Pool* pool;
  bool small;                                 // whether it is in a segment for small requests
  Block *before = nullptr, *after = nullptr;  // neighbours in the segment
  bool free = true;
  MemoryTag tag = MemoryTag::activations;

  bool whole_segment() const { return !before && !after; }
};

class CudaAllocator::Pool {
 public:
  struct Smaller {
    bool operator()(const Block* a, const Block* b) const { return a->size != b->size ? a->size < b->size : a->data < b->data; }
  };
  std::set<Block*, Smaller>& free_blocks(bool small) { return free_[small]; }

  // Bytes of a recording's pool: live now, and the peak.
  size_t live = 0, peak = 0;
  std::array<size_t, kMemoryTagCount> live_by_tag{}, peak_by_tag{};
  bool sealed = false;    // whether the recording has ended: the peak counts as live, whatever is released
  bool released = false;  // whether its recording is gone, so that no replay uses it

 private:
  std::set<Block*, Smaller> free_[2];
};

CudaAllocator::CudaAllocator() : common_(std::make_unique<Pool>()) {}
CudaAllocator::~CudaAllocator() = default;

void* CudaAllocator::allocate(size_t bytes, MemoryTag tag) {
  const size_t size = device_block_size(bytes);
  const std::lock_guard lock(mutex_);
  Block* block = take(recording_pool_ && recording_thread_ == std::this_thread::get_id() ? *recording_pool_ : *common_, size);
  if (!block) out_of_memory(bytes);
  split(block, size);
  block->free = false;
  block->tag = tag;
  live_[block->data] = block;
  add_live(tag, block->size);
  ++stats_.allocations;
  Pool& pool = *block->pool;
  if (&pool != common_.get()) {
    pool.live += block->size;
    pool.live_by_tag[size_t(tag)] += block->size;
    if (pool.live > pool.peak) {
      pool.peak = pool.live;
      pool.peak_by_tag = pool.live_by_tag;
    }
  }
  return block->data;
}

void CudaAllocator::add_live(MemoryTag tag, size_t bytes) {
  stats_.live += bytes;
  stats_.live_by_tag[size_t(tag)] += bytes;
  if (stats_.live <= stats_.peak) return;
  stats_.peak = stats_.live;
  stats_.peak_by_tag = stats_.live_by_tag;
}

// Takes a free block of at least `size` bytes, or a new segment, out of the free blocks; returns null if the device has no memory.
CudaAllocator::Block* CudaAllocator::take(Pool& pool, size_t size) {
  auto& blocks = pool.free_blocks(size <= kSmall);
  Block wanted{nullptr, size, nullptr, false};
  if (const auto it = blocks.lower_bound(&wanted); it != blocks.end()) {
    Block* block = *it;
    blocks.erase(it);
    return block;
  }
  const bool small = size <= kSmall;
  if (Block* block = grow(pool, segment_size(size), small)) return block;
  check<RecordingError>(&pool == common_.get(), "record", "recorded work needs memory of its own, and the device has no more");
  if (recording_pool_) return nullptr;
  free_segments(*common_);  // returns cached memory of other sizes to the device
  if (Block* block = grow(pool, segment_size(size), small)) return block;
  return grow(pool, rounded(size, kSmallSegment), small);  // takes no more than necessary
}

// Allocates a new segment of `bytes` as one block; returns null if the device has no memory for it.
CudaAllocator::Block* CudaAllocator::grow(Pool& pool, size_t bytes, bool small) {
  void* data = nullptr;
  const RelaxedCapture relaxed;
  if (const cudaError_t error = cudaMalloc(&data, bytes); error != cudaSuccess) {
    cudaGetLastError();
    if (error == cudaErrorMemoryAllocation) return nullptr;
    check_cuda(error, "cudaMalloc");
  }
  stats_.reserved += bytes;
  return new Block{static_cast<char*>(data), bytes, &pool, small};
}

// Keeps `size` bytes of the block and frees the rest, unless that is too small to be of use.
void CudaAllocator::split(Block* block, size_t size) {
  const size_t rest = block->size - size;
  if (block->small ? rest < kRound : rest <= kSmall) return;
  auto* tail = new Block{block->data + size, rest, block->pool, block->small};
  tail->before = block;
  tail->after = block->after;
  if (tail->after) tail->after->before = tail;
  block->after = tail;
  block->size = size;
  block->pool->free_blocks(tail->small).insert(tail);
}

void CudaAllocator::release(void* p) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(p);
  Block* block = it->second;
  live_.erase(it);
  Pool* pool = block->pool;
  if (!pool->sealed) {
    stats_.live -= block->size;
    stats_.live_by_tag[size_t(block->tag)] -= block->size;
  }
  if (pool != common_.get()) {
    pool->live -= block->size;
    pool->live_by_tag[size_t(block->tag)] -= block->size;
  }
  give_back(block);
  if (pool->released) destroy_unused();
}

// Joins the block with free neighbours and caches it.
void CudaAllocator::give_back(Block* block) noexcept {
  auto& blocks = block->pool->free_blocks(block->small);
  block->free = true;
  const auto absorb = [&](Block* low, Block* high) {
    low->size += high->size;
    low->after = high->after;
    if (low->after) low->after->before = low;
    delete high;
    return low;
  };
  if (block->before && block->before->free) {
    blocks.erase(block->before);
    block = absorb(block->before, block);
  }
  if (block->after && block->after->free) {
    blocks.erase(block->after);
    block = absorb(block, block->after);
  }
  blocks.insert(block);
}

// Returns the pool's segments without live blocks to the device.
void CudaAllocator::free_segments(Pool& pool) noexcept {
  const RelaxedCapture relaxed;
  for (const bool small : {false, true}) {
    auto& blocks = pool.free_blocks(small);
    for (auto it = blocks.begin(); it != blocks.end();) {
      Block* block = *it;
      if (!block->whole_segment()) {
        ++it;
        continue;
      }
      it = blocks.erase(it);
      cudaFree(block->data);  // waits for work that still uses it
      stats_.reserved -= block->size;
      delete block;
    }
  }
}

void CudaAllocator::retag(void* p, MemoryTag tag) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(p);
  if (it == live_.end()) return;
  Block& block = *it->second;
  const auto move = [&](std::array<size_t, kMemoryTagCount>& by_tag) {
    by_tag[size_t(block.tag)] -= block.size;
    by_tag[size_t(tag)] += block.size;
  };
  if (!block.pool->sealed) move(stats_.live_by_tag);
  if (block.pool != common_.get()) move(block.pool->live_by_tag);
  block.tag = tag;
}

MemoryStats CudaAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CudaAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak = stats_.live;
  stats_.peak_by_tag = stats_.live_by_tag;
}

void CudaAllocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  if (!recording_pool_) free_segments(*common_);
}

CudaAllocator::Pool* CudaAllocator::begin_pool() {
  const std::lock_guard lock(mutex_);
  recording_pool_ = pools_.insert(std::make_unique<Pool>()).first->get();
  recording_thread_ = std::this_thread::get_id();
  return recording_pool_;
}

void CudaAllocator::end_pool() {
  const std::lock_guard lock(mutex_);
  Pool& pool = *recording_pool_;
  recording_pool_ = nullptr;
  pool.sealed = true;
  for (int i = 0; i < kMemoryTagCount; ++i) {
    stats_.live_by_tag[size_t(i)] += pool.peak_by_tag[size_t(i)] - pool.live_by_tag[size_t(i)];
  }
  stats_.live += pool.peak - pool.live;
  destroy_unused();
}

void CudaAllocator::release_pool(Pool* pool) noexcept {
  const std::lock_guard lock(mutex_);
  pool->released = true;
  destroy_unused();
}

// Destroys released pools without live blocks; during a recording, at its end.
void CudaAllocator::destroy_unused() noexcept {
  if (recording_pool_) return;
  std::erase_if(pools_, [&](const std::unique_ptr<Pool>& pool) {
    if (!pool->released || pool->live > 0) return false;
    stats_.live -= pool->peak;
    for (int i = 0; i < kMemoryTagCount; ++i) stats_.live_by_tag[size_t(i)] -= pool->peak_by_tag[size_t(i)];
    free_segments(*pool);
    return true;
  });
}

size_t CudaAllocator::available() const {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const std::lock_guard lock(mutex_);
  return free + stats_.reserved - std::min(stats_.reserved, stats_.live);
}

void CudaAllocator::out_of_memory(size_t bytes) const {
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  TextWriter by_tag;
  for (int i = 0; i < kMemoryTagCount; ++i)
    by_tag << (i ? ", " : "") << name(MemoryTag(i)) << ' ' << in_units(stats_.live_by_tag[size_t(i)]);
  fail<MemoryError>("memory", "cuda:0: cannot allocate ", in_units(bytes), "; ", in_units(stats_.live), " are live (", by_tag.str(),
                    "), ", in_units(stats_.reserved - std::min(stats_.reserved, stats_.live)), " cached, ", in_units(free),
                    " of the device's ", in_units(total), " free",
                    Help{"use a smaller batch with train.accumulate_steps, a smaller model, or mixed precision"});
}

}  // namespace halfstep::cuda
