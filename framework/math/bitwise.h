// SPDX-License-Identifier: Apache-2.0
// Formulas of bitwise ops, shared by host and device. They compute in int64 for every dtype: storing a result cuts off exactly the
// bits that the dtype's own arithmetic would lose.
#pragma once

#include <cstdint>

#include "framework/base/host_device.h"
#include "framework/math/op_kinds.h"

namespace halfstep {

namespace functor {

struct bit_and {
  HS_HD int64_t operator()(int64_t a, int64_t b) const { return a & b; }
};
struct bit_or {
  HS_HD int64_t operator()(int64_t a, int64_t b) const { return a | b; }
};
struct bit_xor {
  HS_HD int64_t operator()(int64_t a, int64_t b) const { return a ^ b; }
};
// Shifts by a negative number, or by at least the number of bits, are undefined in C++. As in PyTorch, they give 0, or the sign
// for a right shift.
struct left_shift {
  HS_HD int64_t operator()(int64_t a, int64_t b) const { return b < 0 || b > 63 ? 0 : int64_t(uint64_t(a) << b); }
};
struct right_shift {
  HS_HD int64_t operator()(int64_t a, int64_t b) const { return a >> (b < 0 || b > 63 ? 63 : b); }
};

}  // namespace functor
}  // namespace halfstep
