// Dense kernels of the unary rows' derivatives.
#include "cuda/kernels/elementwise.cuh"

namespace halfstep::cuda {
namespace {

#define HS_BINARY(...)
#define HS_TEST(...)
#define HS_UNARY(name, ...) DenseKernels<2>::of<functor::name##_backward>(),
constexpr DenseKernels<2> kDense[] = {
#include "framework/math/elementwise.def"
};
#undef HS_UNARY
#undef HS_BINARY
#undef HS_TEST

}  // namespace

DenseKernels<2> dense_unary_backward(Unary op) { return kDense[int(op)]; }

}  // namespace halfstep::cuda
