// SPDX-License-Identifier: Apache-2.0
// The unary rows of elementwise.def, backward.
#include "cuda/kernels/elementwise/elementwise.cuh"

namespace halfstep::cuda {
namespace {

#define HS_UNARY(name, ...) AnyKernels<2>::real<functor::name##_backward>(),
constexpr AnyKernels<2> kAny[] = {
#include "framework/math/elementwise.def"
};

}  // namespace

void unary_backward(const Queue& q, Unary op, const TensorView& grad, const TensorView& saved, const TensorView& out) {
  // A row that saves nothing may have an empty `saved`; any operand of the right shape replaces it.
  const TensorView& second = saved ? saved : grad;
  const bool wide = grad.dtype == DType::f64 || second.dtype == DType::f64 || out.dtype == DType::f64;
  run_elementwise<2>(q, unary_backward_packs(op), kAny[int(op)], wide ? Compute::wide : Compute::single, {&out, &grad, &second});
}

}  // namespace halfstep::cuda
