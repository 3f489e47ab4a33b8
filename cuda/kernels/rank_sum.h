// SPDX-License-Identifier: Apache-2.0
// Sums over ranks on their devices; framework/comm/rank_sum.h does it on the host.
#pragma once

#include <cstdint>

#include "framework/base/dtype.h"

struct CUstream_st;

namespace halfstep::cuda {

// Computes out[i] = ((x_0[i] + x_1[i]) + x_2[i]) + ... for i < count; 16-bit numbers are added in float32 and rounded once, to
// out's dtype. x_r is rank r's data: x_me = own, the others' begin at `others` + r * stride elements. All of one floating dtype;
// out may be own, or x_me's place among the others.
void sum_ranks(CUstream_st* stream, DType dtype, const void* own, const void* others, void* out, int64_t count, int64_t stride,
               int ranks, int me);

}  // namespace halfstep::cuda
