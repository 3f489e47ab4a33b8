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

void register_allocator(Device::Type type, Allocator* a) { registered[size_t(type)] = a; }
void register_device_start(void (*start)(Device device)) { start_device = start; }

Allocator& allocator(Device device) {
  if (device.is_cpu()) return *host_allocator();
  if (device.is_meta()) return *meta_allocator();
  if (!registered[size_t(device.type)] && start_device) start_device(device);
  Allocator* a = registered[size_t(device.type)];
  check<DeviceError>(a != nullptr, "device", device, " has no allocator");
  return *a;
}

}  // namespace halfstep
