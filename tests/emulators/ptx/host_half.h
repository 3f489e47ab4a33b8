// SPDX-License-Identifier: Apache-2.0
// The host's conversions of float16. They are apart from what nvcc compiles, as old nvcc does not know the intrinsics of GCC 13.
#pragma once

#include <cstdint>

namespace host {

enum class Rounding { to_nearest, downward, upward, to_zero };

float from_half(uint16_t bits);
uint16_t to_half(float x, Rounding rounding);

}  // namespace host
