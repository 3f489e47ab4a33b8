// SPDX-License-Identifier: Apache-2.0
// The CPU backend.
#pragma once

#include <memory>

#include "framework/backend/backend.h"

namespace halfstep {

std::unique_ptr<Backend> make_cpu_backend();

}  // namespace halfstep
