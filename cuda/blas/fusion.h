// SPDX-License-Identifier: Apache-2.0
// What the library's epilogues compute by default, by dtype and GPU. Measurements override it (HALFSTEP_TUNE).
#pragma once

#include "framework/base/dtype.h"

namespace halfstep::cuda {

struct Fusion {
  bool gelu;        // forward
  bool derivative;  // DRELU and DGELU, with or without the sum of columns
  bool row_sum;     // BGRADB and BGRADA
};

// Returns the default. `capability`: 90 for sm_90. A bias and a ReLU are always fused: every kernel of the library has them.
Fusion default_fusion(DType dtype, int capability);

// Returns whether the library's GELU is exact enough for results in `out`: it uses the hardware's tanh, with an error of up to
// 5e-4.
constexpr bool gelu_is_exact_enough(DType out) { return is_half(out); }

}  // namespace halfstep::cuda
