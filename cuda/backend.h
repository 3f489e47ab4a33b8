// SPDX-License-Identifier: Apache-2.0
// The entry to the CUDA backend. No CUDA headers here: framework/backend/registry.cpp includes this.
#pragma once

#include <memory>

namespace halfstep {
class Backend;
}

namespace halfstep::cuda {

class CudaAllocator;

// Registers the backend and the allocator of device type cuda. Throws DeviceError with the reason and the remedy if no GPU can be
// used. Call once.
void register_backend();

// Makes another backend with its own stream, which allocates from `memory`, for tests that run several ranks in one process.
std::unique_ptr<Backend> make_backend(CudaAllocator& memory);

}  // namespace halfstep::cuda
