// SPDX-License-Identifier: Apache-2.0
// Cases that compare the kernel `tally` with a plain loop over the elements.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "framework/math/tally.h"
#include "tests/backend/buffers.h"

namespace halfstep::testing {

// Computes the row of counts for the values.
inline std::vector<int64_t> tally_of(const TensorView& x, bool exponents) {
  std::vector<int64_t> row(exponents ? math::kTallyAll : math::kTallyCounts, 0);
  const double normal = x.dtype == DType::f16 ? 0x1p-14 : x.dtype == DType::f64 ? 0x1p-1022 : 0x1p-126;
  double largest = 0, smallest = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double v = get(x, i), size = std::abs(v);
    row[math::kTallyNan] += std::isnan(v);
    row[math::kTallyPositiveInf] += std::isinf(v) && v > 0;
    row[math::kTallyNegativeInf] += std::isinf(v) && v < 0;
    row[math::kTallyZero] += v == 0;
    if (!std::isfinite(v) || v == 0) continue;
    row[math::kTallyNegative] += v < 0;
    row[math::kTallySubnormal] += size < normal;
    largest = std::max(largest, size);
    smallest = std::min(smallest, size);
    if (exponents) ++row[size_t(math::kTallyExponents + std::clamp(std::ilogb(size) + 127, 0, 255))];
  }
  row[math::kTallyLargest] = std::bit_cast<int64_t>(largest);
  row[math::kTallySmallest] = largest > 0 ? std::bit_cast<int64_t>(smallest) : std::numeric_limits<int64_t>::max();
  return row;
}

// Returns values of all magnitudes, with a few of each counted kind.
inline Buffer odd_values(DType t, const Shape& shape, unsigned seed, Layout layout) {
  Buffer x = uniform(t, shape, seed, -2, 2, layout);
  const double odd[] = {std::nan(""),
                        std::numeric_limits<double>::infinity(),
                        -std::numeric_limits<double>::infinity(),
                        0.0,
                        -0.0,
                        0x1p-24,
                        -0x1p-20,
                        0x1p-130,
                        0x1.8p-149,
                        65504,
                        -3e38,
                        1e-310,
                        1e300};
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (i % 5 == 2) set(x.view, i, odd[size_t(i / 5) % std::size(odd)]);
    if (i % 5 == 3) set(x.view, i, std::ldexp(get(x.view, i), int(i % 60) - 30));
  }
  return x;
}

}  // namespace halfstep::testing
