// SPDX-License-Identifier: Apache-2.0
// The backend of Device::meta, which computes nothing. Checks of values always pass, and functions that return values to the host
// throw MetaError. Where backends differ in what callers must allocate, it follows the CPU's.
#pragma once

#include <memory>

#include "framework/backend/backend.h"

namespace halfstep {

std::unique_ptr<Backend> make_meta_backend();

}  // namespace halfstep
