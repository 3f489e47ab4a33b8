// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "framework/base/check.h"

namespace halfstep {

// A model that has no form outside of halfstep.
struct ExportError : Error {
  using Error::Error;
};

}  // namespace halfstep
