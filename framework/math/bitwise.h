// SPDX-License-Identifier: Apache-2.0
// The formulas of ops on the bits of integers, shared by host and device. They compute in int64 whatever the dtype: what is cut off
// when a result is stored is what the dtype's own arithmetic would lose.
#pragma once

#include <cstdint>

#include "framework/base/hd.h"
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
// C++ leaves a shift by a negative number, or by all bits and more, undefined. As in PyTorch, nothing is left of the number then
// but, on the right, its sign.
struct left_shift {
  HS_HD int64_t operator()(int64_t a, int64_t b) const { return b < 0 || b > 63 ? 0 : int64_t(uint64_t(a) << b); }
};
struct right_shift {
  HS_HD int64_t operator()(int64_t a, int64_t b) const { return a >> (b < 0 || b > 63 ? 63 : b); }
};

}  // namespace functor
}  // namespace halfstep
