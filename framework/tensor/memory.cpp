// SPDX-License-Identifier: Apache-2.0
#include "framework/tensor/memory.h"

#include "framework/base/check.h"

namespace halfstep {

Allocator* host_allocator();  // host_allocator.cpp
Allocator* meta_allocator();  // meta_allocator.cpp

namespace {
Allocator* registered[kDeviceTypeCount] = {};
void (*start_device)(Device) = nullptr;
}  // namespace

void register_allocator(Device::Type type, Allocator* allocator) { registered[size_t(type)] = allocator; }
void register_device_start(void (*start)(Device device)) { start_device = start; }

Allocator& allocator(Device device) {
  if (device.is_cpu()) return *host_allocator();
  if (device.is_meta()) return *meta_allocator();
  if (!registered[size_t(device.type)] && start_device) start_device(device);
  Allocator* const found = registered[size_t(device.type)];
  check<DeviceError>(found != nullptr, "device", device, " has no allocator");
  return *found;
}

}  // namespace halfstep
