// SPDX-License-Identifier: Apache-2.0
// How long the rows of a product's result are in memory, where tensor cores compute it.
#pragma once

#include <cstdint>

#include "framework/base/dtype.h"

namespace halfstep {

// Tensor cores read and write packs of 16 bytes, 8 elements of 16 bits.
constexpr int64_t kProductPack = 8;
// The least number of multiplications, which take a GPU about 10 us, and the least length of sums of a product that gains by
// aligned rows.
constexpr double kAlignedProduct = 0x1p30;
constexpr int64_t kAlignedInner = 256;

constexpr int64_t whole_product_packs(int64_t extent) { return (extent + kProductPack - 1) / kProductPack * kProductPack; }

// Returns the length of the rows of a result [m, n] with sums of k: n, or a multiple of 8 for a large product in 16 bits.
inline int64_t aligned_product_row(int64_t m, int64_t n, int64_t k, DType dtype, double large = kAlignedProduct) {
  const bool longer = is_half(dtype) && k >= kAlignedInner && n >= kProductPack && double(m) * double(n) * double(k) >= large;
  return longer ? whole_product_packs(n) : n;
}

}  // namespace halfstep
