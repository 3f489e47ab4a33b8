// SPDX-License-Identifier: Apache-2.0
// The backend of Device::meta: it computes nothing. Checks of values find nothing wrong, and whatever hands values to the host
// throws MetaError. Where backends differ in what they ask callers to allocate, it does as the CPU's does.
#pragma once

#include <memory>

#include "framework/backend/backend.h"

namespace halfstep {

std::unique_ptr<Backend> make_meta_backend();

}  // namespace halfstep
