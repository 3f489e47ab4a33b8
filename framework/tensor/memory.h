// SPDX-License-Identifier: Apache-2.0
// Device memory: the allocator interface, its registry and its statistics.
#pragma once

#include <array>
#include <cstddef>

#include "framework/tensor/storage.h"

namespace halfstep {

// Bytes, counted over the rounded sizes of live blocks as PyTorch's max_memory_allocated does.
struct MemoryStats {
  size_t live = 0;
  size_t peak = 0;                                       // highest `live` since start or reset_peak
  size_t reserved = 0;                                   // held from the system: live plus cached
  std::array<size_t, kMemoryTagCount> live_by_tag{};
  std::array<size_t, kMemoryTagCount> peak_by_tag{};     // live_by_tag at the moment of `peak`: sums to it
  size_t allocations = 0;                                // calls that were served, ever
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void* allocate(size_t bytes, MemoryTag tag) = 0;  // 64-byte aligned; throws MemoryError with the live bytes by tag
  virtual void release(void* p) noexcept = 0;
  virtual void retag(void* p, MemoryTag tag) noexcept = 0;  // counts a live block under another tag
  virtual MemoryStats stats() const = 0;
  virtual void reset_peak() = 0;
  virtual void empty_cache() = 0;                           // gives cached blocks back to the system
};

// What the host's allocator takes for a request: multiples of 64 up to 1 KiB, then eight steps an octave.
size_t host_block_size(size_t bytes);
// What a GPU's takes: multiples of 512.
size_t device_block_size(size_t bytes);
// The device whose blocks Device::meta counts: the cpu (the default), with the workspace of its products, or cuda, without.
Device::Type planned_device();
// Another device to plan for, while it lives. For the whole program: blocks must be counted alike.
class PlanFor {
 public:
  [[nodiscard]] explicit PlanFor(Device::Type type);
  ~PlanFor();
  PlanFor(const PlanFor&) = delete;

 private:
  Device::Type saved_;
};
// The host's allocator throws MemoryError instead of holding more bytes than this, cached ones included; 0: no limit.
void limit_host_memory(size_t bytes);

// The caching allocator of a device; that of Device::meta only counts. Throws DeviceError when the device is not built in or
// not present. Thread-safe.
Allocator& allocator(Device device);
void register_allocator(Device::Type type, Allocator* allocator);  // `allocator` must outlive all tensors
// `start` is called for a device without an allocator, and either registers one or throws DeviceError.
void register_device_start(void (*start)(Device device));

}  // namespace halfstep
