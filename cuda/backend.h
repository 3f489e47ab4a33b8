// The door to the CUDA backend. No CUDA headers here: framework/backend/registry.cpp includes this.
#pragma once

namespace halfstep::cuda {

// Registers the backend and the allocator of device type cuda. Throws DeviceError with the reason and the cure when no GPU can
// be used. Call once.
void register_backend();

}  // namespace halfstep::cuda
