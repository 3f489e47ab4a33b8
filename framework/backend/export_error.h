// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "framework/base/check.h"

namespace halfstep {

// A model that cannot be exported.
struct ExportError : Error {
  using Error::Error;
};

}  // namespace halfstep
