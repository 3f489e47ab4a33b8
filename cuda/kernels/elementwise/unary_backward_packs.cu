// SPDX-License-Identifier: Apache-2.0
// Packs kernels (elementwise.cuh) of the derivatives of the unary ops in elementwise.def.
#include "cuda/kernels/elementwise/elementwise.cuh"

namespace halfstep::cuda {
namespace {

#define HS_UNARY(name, ...) packs_kernel<functor::name##_backward, 2>,
constexpr PacksKernel<2> kPacks[] = {
#include "framework/math/elementwise.def"
};

}  // namespace

PacksKernel<2> unary_backward_packs(Unary op) { return kPacks[int(op)]; }

}  // namespace halfstep::cuda
