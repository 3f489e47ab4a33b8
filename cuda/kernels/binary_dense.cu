// Dense kernels of the binary rows and their derivatives.
#include "cuda/kernels/elementwise.cuh"

namespace halfstep::cuda {
namespace {

#define HS_UNARY(...)
#define HS_TEST(...)
#define HS_BINARY(name, ...) DenseKernels<2>::of<functor::name>(),
constexpr DenseKernels<2> kDense[] = {
#include "framework/math/elementwise.def"
};
#undef HS_BINARY
#define HS_BINARY(name, ...) {DenseKernels<3>::of<functor::name##_backward_a>(), DenseKernels<3>::of<functor::name##_backward_b>()},
constexpr DenseKernels<3> kDenseBackward[][2] = {
#include "framework/math/elementwise.def"
};
#undef HS_BINARY
#undef HS_UNARY
#undef HS_TEST

}  // namespace

DenseKernels<2> dense_binary(Binary op) { return kDense[int(op)]; }
DenseKernels<3> dense_binary_backward(Binary op, int input) { return kDenseBackward[int(op)][input]; }

}  // namespace halfstep::cuda
