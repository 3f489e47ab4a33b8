// SPDX-License-Identifier: Apache-2.0
// A block of memory on one device, shared by the tensors that view it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "framework/base/device.h"

namespace halfstep {

// What a byte is for; the allocators keep a live and a peak count for each.
enum class MemoryTag : uint8_t { activations, data, parameters, shadows, gradients, optimizer, workspace };
inline constexpr int kMemoryTagCount = 7;
const char* name(MemoryTag tag);

// Tags this thread's allocations while it lives. Default outside any scope: activations.
class MemoryScope {
 public:
  [[nodiscard]] explicit MemoryScope(MemoryTag tag);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  static MemoryTag current();

 private:
  MemoryTag saved_;
};

class Storage {
 public:
  // Allocates `bytes` on `device` through its backend's caching allocator. Contents are not initialised.
  [[nodiscard]] Storage(size_t bytes, Device device);
  // Wraps memory that `owner` keeps alive (an Eigen matrix, a mapped file). Not counted by the allocator.
  [[nodiscard]] Storage(void* data, size_t bytes, Device device, std::shared_ptr<void> owner);
  ~Storage();
  Storage(const Storage&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // Grows with every in-place write; saved tensors compare it on use.
  uint64_t version() const { return version_; }
  void bump_version() {
    ++version_;
    if (derived) [[unlikely]]
      derived.reset();
  }
  // Somebody has a pointer to these bytes, or they are memory of the caller's: they may change without a new version, so nothing
  // that was made of them, such as the 16-bit copy of a weight, is kept for later. Never taken back, as the pointer may be kept.
  // Threads that read one tensor may all ask for its pointer.
  bool is_exposed() const { return exposed_.load(std::memory_order_relaxed); }
  void expose() {
    if (!is_exposed()) exposed_.store(true, std::memory_order_relaxed);
  }

  // Grows only with in-place writes that autograd recorded; a view made before such a write must not be used after it.
  uint64_t recorded_writes = 0;
  // What was made of these bytes, such as a matrix in the layout of a product (framework/ops/linalg/packed_weights.h). The next
  // in-place write drops it. Who reads or sets it holds a lock of its own.
  std::shared_ptr<void> derived;

 private:
  void* data_;
  size_t bytes_;
  Device device_;
  std::shared_ptr<void> owner_;
  uint64_t version_ = 0;
  std::atomic<bool> exposed_ = false;
};

}  // namespace halfstep
