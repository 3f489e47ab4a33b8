// SPDX-License-Identifier: Apache-2.0
// The unary rows, in packs.
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
