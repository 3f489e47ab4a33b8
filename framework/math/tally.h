// SPDX-License-Identifier: Apache-2.0
// Counts of the kernel `tally` over a tensor's values, shared by host and device. All counts are exact, so they do not depend on
// the order of the elements or on the device.
#pragma once

#include <stdint.h>
#include <string.h>

#include "framework/base/dtype.h"
#include "framework/base/host_device.h"

namespace halfstep::math {

// Positions in a row of i64. Those before kTallyLargest are counts.
enum TallyPlace : int {
  kTallyNan,
  kTallyPositiveInf,
  kTallyNegativeInf,
  kTallyZero,
  kTallyNegative,   // finite, below zero
  kTallySubnormal,  // below the smallest normal number of the tensor's dtype, but not zero
  kTallyLargest,    // bits of the largest finite |x| as a double; 0 if no value is finite and nonzero
  kTallySmallest,   // bits of the smallest finite |x| > 0 as a double; INT64_MAX if there is none
  kTallyCounts,     // length of a row without the histogram
  // Histogram of the finite, nonzero values: [e] counts those with 2^(e - 127) <= |x| < 2^(e - 126), [0] those that are subnormal
  // in float32. Float64 values outside this range count at the ends.
  kTallyExponents = kTallyCounts,
  kTallyAll = kTallyExponents + 256,  // length of a row with the histogram
};

template <class To, class From>
HS_HD To same_bits(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To out;
  memcpy(&out, &x, sizeof out);
  return out;
}

// Return the bits without the sign.
HS_HD uint32_t magnitude_bits(float x) { return same_bits<uint32_t>(x) & 0x7fffffffu; }
HS_HD uint64_t magnitude_bits(double x) { return same_bits<uint64_t>(x) & ~(uint64_t(1) << 63); }
template <class C>
struct FloatBits;
template <>
struct FloatBits<float> {
  using Bits = uint32_t;
  static constexpr Bits kInf = 0x7f800000u;
};
template <>
struct FloatBits<double> {
  using Bits = uint64_t;
  static constexpr Bits kInf = uint64_t(0x7ff) << 52;
};

// Returns the bits of the dtype's smallest normal number, in the type in which it is computed.
HS_HD uint64_t smallest_normal_bits(DType dtype) {
  return dtype == DType::f16 ? 0x38800000u : dtype == DType::f64 ? uint64_t(1) << 52 : 0x00800000u;
}
HS_HD int exponent_place(uint32_t magnitude) { return int(magnitude >> 23); }
HS_HD int exponent_place(uint64_t magnitude) {
  const int e = int(magnitude >> 52) - 1023 + 127;
  return e < 0 ? 0 : e > 255 ? 255 : e;
}

}  // namespace halfstep::math
