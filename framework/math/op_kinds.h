// SPDX-License-Identifier: Apache-2.0
// Enums of the elementwise ops, with an entry for each row of elementwise.def and pointwise.def. CMake writes the lists of names
// and changes them only when a name changes, so an edit of a formula does not recompile the files that include only this header.
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
enum class Comparison : uint8_t {  // of two numbers or truth values
#define HS_TEST(name) name,
#include "generated/elementwise_names.def"
};
enum class Bitwise : uint8_t { bit_and, bit_or, bit_xor, left_shift, right_shift };  // of bitwise.h, without a .def
enum class Pointwise : uint8_t {
#define HS_POINTWISE(name) name,
#include "generated/pointwise_names.def"
};

}  // namespace halfstep
