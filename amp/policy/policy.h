// SPDX-License-Identifier: Apache-2.0
// The law of mixed precision as a pure function: which dtype an op's inputs take. No tensors here.
#pragma once

#include <span>
#include <string_view>

#include "framework/base/dtype.h"

namespace halfstep {

// What autocast does with an op's floating inputs. float64, integers and bool are never touched.
enum class CastPolicy : uint8_t {
  low,          // -> the region's dtype                                  matmul, linear, conv
  f32,          // -> float32                                             exp, pow, losses
  f32_output,   // inputs stay; the result is float32 unless the caller chose a dtype    sum, softmax
  promote,      // -> the widest among them                               atan2, cat, scatter_add
  keep,         // unchanged                                              relu, dropout, views, add (which promotes by itself)
  banned,       // throws inside a region, naming the safe op             binary_cross_entropy
};
std::string_view name(CastPolicy p);

// The dtype that input `self` takes inside a region whose low dtype is `low`; `all` are the dtypes of all tensor inputs.
// `promote` does not depend on the order of the inputs: float32, or a 16-bit type other than `low`, anywhere gives float32.
DType cast_target(CastPolicy policy, DType low, DType self, std::span<const DType> all);

}  // namespace halfstep
