// SPDX-License-Identifier: Apache-2.0
// A block of memory on one device, shared by the tensors that view it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "framework/base/device.h"
#include "framework/base/guard.h"

namespace halfstep {

// Purpose of an allocation; the allocators count live and peak bytes for each.
enum class MemoryTag : uint8_t { activations, data, parameters, shadows, gradients, optimizer, workspace };
inline constexpr int kMemoryTagCount = 7;
const char* name(MemoryTag tag);

// Sets the tag of this thread's allocations while it lives. Without a scope: activations.
class MemoryScope : LocalGuard {
 public:
  [[nodiscard]] explicit MemoryScope(MemoryTag tag);
  ~MemoryScope();
  static MemoryTag current();

 private:
  MemoryTag saved_;
};

class Storage {
 public:
  // Allocates `bytes` on `device` from its backend's caching allocator, without initialising them.
  [[nodiscard]] Storage(size_t bytes, Device device);
  // Wraps memory that `owner` keeps alive (an Eigen matrix, a mapped file). The allocator does not count it.
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
  // Marks that other code has a pointer to these bytes or owns them, so they may change without a new version. Derived data, such
  // as the 16-bit copy of a weight, is then not kept. The mark stays, as the pointer may. Several threads may set it at once.
  bool is_exposed() const { return exposed_.load(std::memory_order_relaxed); }
  void expose() {
    if (!is_exposed()) exposed_.store(true, std::memory_order_relaxed);
  }

  // Counts the in-place writes that autograd recorded; a view made before such a write must not be used after it.
  uint64_t recorded_writes = 0;
  // Data derived from these bytes, such as a matrix in the layout of a product (framework/ops/linalg/packed_weights.h). The next
  // in-place write drops it. Readers and writers hold their own lock.
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
