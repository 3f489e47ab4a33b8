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
  check<DeviceError>(a != nullptr, "device", device, " is not available in this build or on this machine",
                     Help{"configure with -DHALFSTEP_CUDA=ON on a machine with an NVIDIA GPU; `halfstep devices` says more"});
  return *a;
}

}  // namespace halfstep
