// SPDX-License-Identifier: Apache-2.0
// Which elementwise op: an enum entry for each row of elementwise.def and pointwise.def, named like the row. CMake writes the lists
// of names, and touches them only when a name changes: an edit of a formula recompiles what includes functors.h, and nothing else.
#pragma once

#include <cstdint>

namespace halfstep {

enum class Unary : uint8_t {
#define HS_UNARY(name) name,
#include "generated/elementwise_names.def"
};
enum class Binary : uint8_t {
#define HS_BINARY(name) name,
#include "generated/elementwise_names.def"
};
enum class Test : uint8_t {
#define HS_TEST(name) name,
#include "generated/elementwise_names.def"
};
enum class Bitwise : uint8_t { bit_and, bit_or, bit_xor, left_shift, right_shift };  // bitwise.h
enum class Pointwise : uint8_t {
#define HS_POINTWISE(name) name,
#include "generated/pointwise_names.def"
};

}  // namespace halfstep
