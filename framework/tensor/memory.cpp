#include "framework/tensor/memory.h"

#include "framework/base/check.h"

namespace halfstep {

Allocator* host_allocator();  // host_allocator.cpp

namespace {
Allocator* registered[kDeviceTypeCount] = {};
}

void register_allocator(Device::Type type, Allocator* a) { registered[size_t(type)] = a; }

Allocator& allocator(Device device) {
  if (device.is_cpu()) return *host_allocator();
  Allocator* a = registered[size_t(device.type)];
  check<DeviceError>(a != nullptr, "device", device, " is not built in",
                     Help{"this version computes on the CPU only"});
  return *a;
}

}  // namespace halfstep
