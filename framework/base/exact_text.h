// SPDX-License-Identifier: Apache-2.0
// Numbers in messages.
#pragma once

#include <string>

#include "framework/base/number.h"

namespace halfstep {

// Returns the number with six digits, or as many as it takes to read the same number back: 1e-05, 2147483648, 0.30000000000000004.
std::string exact_text(Number value);

}  // namespace halfstep
