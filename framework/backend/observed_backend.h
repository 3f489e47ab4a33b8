// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "framework/backend/backend.h"

namespace halfstep {

// Returns a backend that passes each call on to the device's own and reports it to the thread's observers
// (framework/backend/observe.h). libraries: calls that a library computes as a whole (attention, recurrent networks) stay whole.
std::unique_ptr<Backend> observed_backend(Device device, bool libraries);
// Returns the device's own backend, observed or not. Throws as backend_for().
Backend& unobserved_backend(Device device);

}  // namespace halfstep
