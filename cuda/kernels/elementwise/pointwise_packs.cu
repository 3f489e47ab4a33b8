// SPDX-License-Identifier: Apache-2.0
// The forward kernels that compute packs of elements (pointwise.cuh), one for each row of pointwise.def.
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
