// Comparisons, logic and selection.
#include "cuda/kernels/elementwise.cuh"

namespace halfstep::cuda {
namespace {

struct Choose {
  template <class C>
  __device__ C operator()(C cond, C a, C b) const {
    return cond != C(0) ? a : b;
  }
};

#define HS_UNARY(...)
#define HS_BINARY(...)
#define HS_TEST(name, ...) AnyKernels<2>::any<functor::name>(),
constexpr AnyKernels<2> kAny[] = {
#include "framework/math/elementwise.def"
};
#undef HS_TEST
#undef HS_UNARY
#undef HS_BINARY

}  // namespace

void test(const Queue& q, Test op, const TensorView& a, const TensorView& b, const TensorView& out) {
  run_elementwise<2>(q, {}, kAny[int(op)], wider(compute_of(a.dtype), compute_of(b.dtype)), out, {&a, &b});
}

void where(const Queue& q, const TensorView& cond, const TensorView& a, const TensorView& b, const TensorView& out) {
  const Compute c = wider(wider(compute_of(a.dtype), compute_of(b.dtype)), compute_of(cond.dtype));
  run_elementwise<3>(q, {}, AnyKernels<3>::any<Choose>(), c, out, {&cond, &a, &b});
}

}  // namespace halfstep::cuda
