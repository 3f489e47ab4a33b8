// SPDX-License-Identifier: Apache-2.0
// Small float64 tensors, for tests with values computed by hand.
#pragma once

#include <initializer_list>
#include <vector>

#include "framework/ops/ops.h"

namespace halfstep::testing {

using V = std::vector<double>;
inline V values(const Tensor& t) { return t.to_vector<double>(); }
inline Tensor leaf(std::initializer_list<double> v) { return tensor(V(v), {.dtype = DType::f64, .requires_grad = true}); }

}  // namespace halfstep::testing
