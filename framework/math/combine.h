// SPDX-License-Identifier: Apache-2.0
// Merges two partial results, on host and device: for reductions, scans and norms.
#pragma once

#include "framework/base/host_device.h"
#include "framework/math/scalar.h"

namespace halfstep::math {

// Keeps the first NaN, which wins over every number.
struct MaxJoin {
  template <class T>
  HS_HD static T join(T a, T b) {
    return b > a || b != b ? b : a;
  }
};
struct MinJoin {
  template <class T>
  HS_HD static T join(T a, T b) {
    return b < a || b != b ? b : a;
  }
};
struct SumJoin {
  template <class T>
  HS_HD static T join(T a, T b) {
    return m::add(a, b);
  }
};
struct ProductJoin {
  template <class T>
  HS_HD static T join(T a, T b) {
    return m::mul(a, b);
  }
};

}  // namespace halfstep::math
