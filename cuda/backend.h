// SPDX-License-Identifier: Apache-2.0
// The door to the CUDA backend. No CUDA headers here: framework/backend/registry.cpp includes this.
#pragma once

#include <memory>

namespace halfstep {
class Backend;
}

namespace halfstep::cuda {

class CudaAllocator;

// Registers the backend and the allocator of device type cuda. Throws DeviceError with the reason and the cure when no GPU can
// be used. Call once.
void register_backend();

// Another backend, with a stream of its own, that takes its memory from `memory`, for tests that run several ranks in one process.
std::unique_ptr<Backend> make_backend(CudaAllocator& memory);

}  // namespace halfstep::cuda
