// SPDX-License-Identifier: Apache-2.0
// Sums, maxima and minima over ranks, in the order of the ranks.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "framework/base/dtype.h"
#include "framework/comm/process_group.h"

namespace halfstep {

// Computes out[i] = in[0][i] op in[1][i] op ..., with the numbers of rank r in in[r]. 16-bit numbers are combined in float32 and
// rounded once. out may be one of them.
template <class T>
void reduce_ranks(std::span<const T* const> in, T* out, size_t n, ReduceOp op) {
  using Wide = std::conditional_t<std::is_same_v<T, f16> || std::is_same_v<T, bf16>, float, T>;
  constexpr size_t kBlock = 1024;  // stays in the cache while all ranks are added
  Wide combined[kBlock];
  for (size_t from = 0; from < n; from += kBlock) {
    const size_t count = n - from < kBlock ? n - from : kBlock;
    for (size_t i = 0; i < count; ++i) combined[i] = Wide(in[0][from + i]);
    for (size_t r = 1; r < in.size(); ++r) {
      const T* next = in[r] + from;
      if (op == ReduceOp::sum) {
        for (size_t i = 0; i < count; ++i) combined[i] = Wide(combined[i] + Wide(next[i]));
      } else if (op == ReduceOp::max) {
        for (size_t i = 0; i < count; ++i) combined[i] = combined[i] < Wide(next[i]) ? Wide(next[i]) : combined[i];
      } else {
        for (size_t i = 0; i < count; ++i) combined[i] = Wide(next[i]) < combined[i] ? Wide(next[i]) : combined[i];
      }
    }
    for (size_t i = 0; i < count; ++i) out[from + i] = T(combined[i]);
  }
}

}  // namespace halfstep
