// SPDX-License-Identifier: Apache-2.0
// Packs kernels (elementwise.cuh) of the binary ops in elementwise.def, and of their derivatives by either input.
#include "cuda/kernels/elementwise/elementwise.cuh"

namespace halfstep::cuda {
namespace {

#define HS_BINARY(name, ...) packs_kernel<functor::name, 2>,
constexpr PacksKernel<2> kPacks[] = {
#include "framework/math/elementwise.def"
};
#define HS_BINARY(name, ...) {packs_kernel<functor::name##_backward_a, 3>, packs_kernel<functor::name##_backward_b, 3>},
constexpr PacksKernel<3> kPacksBackward[][2] = {
#include "framework/math/elementwise.def"
};

}  // namespace

PacksKernel<2> binary_packs(Binary op) { return kPacks[int(op)]; }
PacksKernel<3> binary_backward_packs(Binary op, int input) { return kPacksBackward[int(op)][input]; }

}  // namespace halfstep::cuda
