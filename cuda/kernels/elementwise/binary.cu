// SPDX-License-Identifier: Apache-2.0
// The binary rows of elementwise.def, forward.
#include "cuda/kernels/elementwise/elementwise.cuh"

namespace halfstep::cuda {
namespace {

#define HS_BINARY(name, policy, kind, ...) AnyKernels<2>::kind<functor::name>(),
constexpr AnyKernels<2> kAny[] = {
#include "framework/math/elementwise.def"
};

}  // namespace

void add_relu(const Queue& q, const TensorView& a, const TensorView& b, const TensorView& out) {
  using Fn = functor::add_relu;
  run_elementwise<2>(q, packs_kernel<Fn, 2>, AnyKernels<2>::real<Fn>(), compute_of(out.dtype), {&out, &a, &b});
}

void add_relu_backward(const Queue& q, const TensorView& a, const TensorView& b, const TensorView& y, const TensorView& out) {
  using Fn = functor::add_relu_backward;
  run_elementwise<3>(q, packs_kernel<Fn, 3>, AnyKernels<3>::real<Fn>(), compute_of(out.dtype), {&out, &a, &b, &y});
}

void binary(const Queue& q, Binary op, const TensorView& a, const TensorView& b, const TensorView& out) {
  Compute c = wider(compute_of(a.dtype), compute_of(b.dtype));
  if (c == Compute::integer && kBinaryRows[int(op)].kind == OpKind::real) c = Compute::single;
  // A number is given as a double but counts in the result's dtype, so that it does not turn float arithmetic into double.
  if (is_floating(out.dtype) && c != Compute::integer) c = compute_of(out.dtype);
  run_elementwise<2>(q, binary_packs(op), kAny[int(op)], c, {&out, &a, &b});
}

}  // namespace halfstep::cuda
