// SPDX-License-Identifier: Apache-2.0
// The binary rows of elementwise.def, backward.
#include "cuda/kernels/elementwise/elementwise.cuh"

namespace halfstep::cuda {
namespace {

#define HS_BINARY(name, ...) {AnyKernels<3>::real<functor::name##_backward_a>(), AnyKernels<3>::real<functor::name##_backward_b>()},
constexpr AnyKernels<3> kAnyBackward[][2] = {
#include "framework/math/elementwise.def"
};

}  // namespace

void binary_backward(const Queue& q, Binary op, int input, const TensorView& grad, const TensorView& a, const TensorView& b,
                     const TensorView& out) {
  const bool wide = grad.dtype == DType::f64 || out.dtype == DType::f64;
  run_elementwise<3>(q, binary_backward_packs(op, input), kAnyBackward[int(op)][input], wide ? Compute::wide : Compute::single,
                     {&out, &grad, &a, &b});
}

}  // namespace halfstep::cuda
