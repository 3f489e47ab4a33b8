// SPDX-License-Identifier: Apache-2.0
// Merges two partial results into one, on host and device: reductions, scans and norms join their parts with these.
#pragma once

#include "framework/base/hd.h"
#include "framework/math/scalar.h"

namespace halfstep::math {

// NaN wins over everything, and the first one stays.
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
