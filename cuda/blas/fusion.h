// SPDX-License-Identifier: Apache-2.0
// What is left to the library's epilogues by default, by dtype and GPU. Measurement overrules it (HALFSTEP_TUNE).
#pragma once

#include "framework/base/dtype.h"

namespace halfstep::cuda {

struct Fusion {
  bool gelu;        // forward
  bool derivative;  // DRELU, DGELU, with and without the sum of columns
  bool row_sum;     // BGRADB, and BGRADA
};

// `capability`: 90 for sm_90. A bias and a ReLU are always fused: every kernel of the library has them.
Fusion default_fusion(DType dtype, int capability);

// Whether the library's GELU is good enough for results in `out`: it takes the hardware's tanh, which is off by up to 5e-4.
constexpr bool gelu_is_exact_enough(DType out) { return is_half(out); }

}  // namespace halfstep::cuda
