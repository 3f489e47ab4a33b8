// SPDX-License-Identifier: Apache-2.0
// The unary rows of elementwise.def, forward.
#include "cuda/kernels/elementwise/elementwise.cuh"

namespace halfstep::cuda {
namespace {

#define HS_UNARY(name, policy, kind, ...) AnyKernels<1>::kind<functor::name>(),
constexpr AnyKernels<1> kAny[] = {
#include "framework/math/elementwise.def"
};

}  // namespace

void unary(const Queue& q, Unary op, const TensorView& x, const TensorView& out) {
  Compute c = compute_of(x.dtype);
  if (c == Compute::integer && kUnaryRows[int(op)].kind == OpKind::real) c = Compute::single;
  if (out.dtype == DType::f64 && c == Compute::single) c = Compute::wide;
  run_elementwise<1>(q, unary_packs(op), kAny[int(op)], c, {&out, &x});
}

}  // namespace halfstep::cuda
