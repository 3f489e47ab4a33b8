// SPDX-License-Identifier: Apache-2.0
#include "framework/tensor/storage.h"

#include "framework/tensor/memory.h"

namespace halfstep {
namespace {
thread_local MemoryTag current_tag = MemoryTag::activations;
}

const char* name(MemoryTag tag) {
  constexpr const char* names[kMemoryTagCount] = {"activations", "data",      "parameters", "shadows",
                                                  "gradients",   "optimizer", "workspace"};
  return names[size_t(tag)];
}

MemoryScope::MemoryScope(MemoryTag tag) : saved_(current_tag) { current_tag = tag; }
MemoryScope::~MemoryScope() { current_tag = saved_; }
MemoryTag MemoryScope::current() { return current_tag; }

Storage::Storage(size_t bytes, Device device)
    : data_(bytes ? allocator(device).allocate(bytes, MemoryScope::current()) : nullptr), bytes_(bytes), device_(device) {}

Storage::Storage(void* data, size_t bytes, Device device, std::shared_ptr<void> owner)
    : data_(data), bytes_(bytes), device_(device), owner_(std::move(owner)) {}

Storage::~Storage() {
  if (data_ && !owner_) allocator(device_).release(data_);
}

}  // namespace halfstep
