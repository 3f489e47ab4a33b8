// SPDX-License-Identifier: Apache-2.0
// A convolution with a weight and a bias that a container made of several layers; not for general use.
#pragma once

#include "framework/ops/window/convolution.h"

namespace halfstep {

// Computes conv1d, conv2d or conv3d for dims = 1, 2 or 3, in InferenceMode. A region casts x alone: the weight has the dtype in
// which this is to be computed, or is float32 beside a 16-bit x on the CPU; the bias may be float32 beside a 16-bit x everywhere.
Tensor folded_conv(int dims, const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options, bool relu);

}  // namespace halfstep
