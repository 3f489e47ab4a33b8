// Convolutions on CUDA: unfold and cuBLASLt products. The contracts are Backend's.
#pragma once

#include "cuda/kernels/kernels.h"

namespace halfstep::cuda {

void conv(const Queue& q, const TensorView& x, const TensorView& weight, const TensorView& bias, const Window& window,
          int64_t groups, const TensorView& out);
void conv_backward_data(const Queue& q, const TensorView& grad, const TensorView& weight, const TensorView& bias,
                        const Window& window, int64_t groups, const TensorView& out);
void conv_backward_weight(const Queue& q, const TensorView& x, const TensorView& grad, const Window& window, int64_t groups,
                          const TensorView& out, const TensorView& bias_out);

}  // namespace halfstep::cuda
