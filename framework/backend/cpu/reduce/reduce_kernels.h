// SPDX-License-Identifier: Apache-2.0
// The inner loops of reductions. Sums use a fixed number of lanes, so they do not depend on the instruction set or the threads.
#pragma once

#include <cstdint>
#include <type_traits>

#include "framework/backend/backend.h"

namespace halfstep::cpu {

// The type between blocks: a block of floats is reduced in float, and blocks are joined in double.
template <class C>
using Wide = std::conditional_t<std::is_same_v<C, int64_t>, int64_t, double>;

// Returns the result of `op` over no elements.
template <class W>
W reduce_identity(Reduce op);
template <class W>
W reduce_join(Reduce op, W a, W b);

// Returns x[0] op x[1] op ...; mean is sum; any and all return 0 or 1.
template <class C>
Wide<C> reduce_row(Reduce op, const C* x, int64_t n);
// Returns a sum, mean, sum_abs or sum_squares of stored values, equal to reduce_row of their floats.
double sum_row(Reduce op, const bf16* x, int64_t n);
// Computes into[i] = into[i] op x[i].
template <class C>
void reduce_columns(Reduce op, C* into, const C* x, int64_t n);
// Computes into[i] += sum over k < rows of x[k step + i].
void sum_columns(float* into, const float* x, int64_t step, int64_t rows, int64_t n);
void sum_columns(float* into, const bf16* x, int64_t step, int64_t rows, int64_t n);

}  // namespace halfstep::cpu
