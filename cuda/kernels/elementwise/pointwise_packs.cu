// SPDX-License-Identifier: Apache-2.0
// Packs kernels (pointwise.cuh) of the rows of pointwise.def, forward.
#include "cuda/kernels/elementwise/pointwise.cuh"

namespace halfstep::cuda {
namespace {

#define HS_POINTWISE(row, op, arity, ...) pointwise_packs_kernel<PointwiseForward<functor::pointwise::row, arity>>,
constexpr PointwisePacks kPacks[] = {
#include "framework/math/pointwise.def"
};

}  // namespace

PointwisePacks pointwise_packs(Pointwise row) { return kPacks[int(row)]; }

}  // namespace halfstep::cuda
