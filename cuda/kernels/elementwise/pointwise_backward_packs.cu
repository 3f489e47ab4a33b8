// SPDX-License-Identifier: Apache-2.0
// Packs kernels (pointwise.cuh) of the gradients of the rows of pointwise.def.
#include "cuda/kernels/elementwise/pointwise.cuh"

namespace halfstep::cuda {
namespace {

template <class Row, int Input>
constexpr PointwisePacks gradient() {
  if constexpr (gradient_names<Row, Input> == 0)
    return nullptr;
  else
    return pointwise_packs_kernel<PointwiseGradient<Row, Input>>;
}

#define HS_POINTWISE(row, ...) \
  {gradient<functor::pointwise::row, 0>(), gradient<functor::pointwise::row, 1>(), gradient<functor::pointwise::row, 2>()},
constexpr PointwisePacks kPacks[][3] = {
#include "framework/math/pointwise.def"
};

}  // namespace

PointwisePacks pointwise_backward_packs(Pointwise row, int input) { return kPacks[int(row)][input]; }

}  // namespace halfstep::cuda
