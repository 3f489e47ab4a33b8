// SPDX-License-Identifier: Apache-2.0
// Splits the dimensions of a reduction's input into kept and reduced ones.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "framework/backend/cpu/elementwise/loops.h"

namespace halfstep::cpu {

// The dimensions of x of other sizes than 1: kept ones (with the strides of out and x) and reduced ones (strides of x), largest
// stride first.
struct ReduceSplit {
  Shape kept, reduced;
  Strides kept_out, kept_in, reduced_in;

  ReduceSplit(const TensorView& x, const TensorView& out) {
    int order[kMaxDims], count = 0;
    for (int d = 0; d < x.shape.size(); ++d) {
      if (x.shape[d] != 1) order[count++] = d;
    }
    std::stable_sort(order, order + count, [&](int a, int b) { return std::abs(x.strides[a]) > std::abs(x.strides[b]); });
    for (int i = 0; i < count; ++i) {
      const int d = order[i];
      if (out.shape[d] == 1) {
        reduced.push_back(x.shape[d]);
        reduced_in.push_back(x.strides[d]);
      } else {
        kept.push_back(x.shape[d]);
        kept_out.push_back(out.strides[d]);
        kept_in.push_back(x.strides[d]);
      }
    }
  }
  // Returns whether kept elements are closer together in memory than reduced ones, and enough to fill a vector.
  bool by_columns() const {
    constexpr int64_t kVector = 8;  // float32 elements of an AVX vector
    if (kept.empty() || reduced.empty() || kept.back() < kVector || numel(reduced) == 0) return false;
    return std::abs(kept_in.back()) < std::abs(reduced_in.back());
  }
};

}  // namespace halfstep::cpu
