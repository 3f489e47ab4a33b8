// SPDX-License-Identifier: Apache-2.0
// Device memory: the allocator interface, its registry and its statistics.
#pragma once

#include <array>
#include <cstddef>

#include "framework/base/guard.h"
#include "framework/tensor/storage.h"

namespace halfstep {

// Bytes in live blocks, at their rounded sizes, as PyTorch's max_memory_allocated counts them.
struct MemoryStats {
  size_t live = 0;
  size_t peak = 0;                                       // highest `live` since start or reset_peak
  size_t reserved = 0;                                   // taken from the system: live plus cached
  std::array<size_t, kMemoryTagCount> live_by_tag{};
  std::array<size_t, kMemoryTagCount> peak_by_tag{};     // live_by_tag at the moment of `peak`: sums to it
  size_t allocations = 0;                                // successful calls since the start
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void* allocate(size_t bytes, MemoryTag tag) = 0;  // 64-byte aligned; throws MemoryError with the live bytes by tag
  virtual void release(void* p) noexcept = 0;
  virtual void retag(void* p, MemoryTag tag) noexcept = 0;  // counts a live block under another tag from now on
  virtual MemoryStats stats() const = 0;
  virtual void reset_peak() = 0;
  virtual void empty_cache() = 0;                           // gives cached blocks back to the system
};

// Returns the size that the host's allocator uses for a request: multiples of 64 up to 1 KiB, then eight steps per octave.
size_t host_block_size(size_t bytes);
// Returns the size that a GPU's allocator uses: multiples of 512.
size_t device_block_size(size_t bytes);
// Returns the device whose blocks Device::meta counts: the cpu (default), with the workspace of its products, or cuda, without.
Device::Type planned_device();
// Sets the planned device while it lives, for the whole program, because blocks must be counted alike.
class PlanFor : LocalGuard {
 public:
  [[nodiscard]] explicit PlanFor(Device::Type type);
  ~PlanFor();

 private:
  Device::Type saved_;
};
// Makes the host's allocator throw MemoryError rather than hold more bytes, cached ones included; 0: no limit.
void limit_host_memory(size_t bytes);

// Returns the caching allocator of a device; the one of Device::meta only counts. Throws DeviceError if the device is not built in
// or not present. Thread-safe.
Allocator& allocator(Device device);
void register_allocator(Device::Type type, Allocator* allocator);  // `allocator` must outlive all tensors
// Registers `start`, which is called for a device without an allocator and either registers one or throws DeviceError.
void register_device_start(void (*start)(Device device));

}  // namespace halfstep
