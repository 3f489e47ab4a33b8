// SPDX-License-Identifier: Apache-2.0
// Packs kernels (elementwise.cuh) of the unary ops in elementwise.def.
#include "cuda/kernels/elementwise/elementwise.cuh"

namespace halfstep::cuda {
namespace {

#define HS_UNARY(name, ...) packs_kernel<functor::name, 1>,
constexpr PacksKernel<1> kPacks[] = {
#include "framework/math/elementwise.def"
};

}  // namespace

PacksKernel<1> unary_packs(Unary op) { return kPacks[int(op)]; }

}  // namespace halfstep::cuda
