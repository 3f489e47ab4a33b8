// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "framework/backend/backend.h"

namespace halfstep {

// A backend that hands each call to the device's own and reports it to the observers of the thread (framework/backend/observe.h).
// libraries: with what a library computes as a whole, attention and recurrent networks, if the device has such a library.
std::unique_ptr<Backend> observed_backend(Device device, bool libraries);
// The device's own backend, whether it is observed or not. Throws as backend_for().
Backend& unobserved_backend(Device device);

}  // namespace halfstep
