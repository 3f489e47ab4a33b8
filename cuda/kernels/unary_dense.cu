// Dense kernels of the unary rows.
#include "cuda/kernels/elementwise.cuh"

namespace halfstep::cuda {
namespace {

#define HS_BINARY(...)
#define HS_TEST(...)
#define HS_UNARY(name, ...) DenseKernels<1>::of<functor::name>(),
constexpr DenseKernels<1> kDense[] = {
#include "framework/math/elementwise.def"
};
#undef HS_UNARY
#undef HS_BINARY
#undef HS_TEST

}  // namespace

DenseKernels<1> dense_unary(Unary op) { return kDense[int(op)]; }

}  // namespace halfstep::cuda
