// SPDX-License-Identifier: Apache-2.0
// Comparisons, logic, bits and selection.
#include "cuda/kernels/elementwise/elementwise.cuh"
#include "framework/math/bitwise.h"

namespace halfstep::cuda {
namespace {

struct Choose {
  template <class C>
  __device__ C operator()(C cond, C a, C b) const {
    return cond != C(0) ? a : b;
  }
};

#define HS_TEST(name, ...) AnyKernels<2>::any<functor::name>(),
constexpr AnyKernels<2> kAny[] = {
#include "framework/math/elementwise.def"
};
#define HS_TEST(name, ...) packs_kernel<functor::name, 2, true>,
constexpr PacksKernel<2> kPacks[] = {
#include "framework/math/elementwise.def"
};

constexpr AnyKernels<2> kBits[] = {AnyKernels<2>::whole<functor::bit_and>(), AnyKernels<2>::whole<functor::bit_or>(),
                                   AnyKernels<2>::whole<functor::bit_xor>(), AnyKernels<2>::whole<functor::left_shift>(),
                                   AnyKernels<2>::whole<functor::right_shift>()};

// Returns the compute type of v; a number beside floats counts in their type.
Compute compute_beside(const TensorView& v, const TensorView& other) {
  return v.number && is_floating(other.dtype) ? compute_of(other.dtype) : compute_of(v.dtype);
}

// Returns v; for a number that is a double, `view` of its value in t, which is stored in `number`, rounded once.
const TensorView* rounded(const TensorView& v, DType t, float& number, TensorView& view) {
  if (!v.number || v.dtype != DType::f64) return &v;
  const double x = *v.as<const double>();
  number = t == DType::f16 ? to_float(from_float<__half>(x)) : t == DType::bf16 ? to_float(from_float<__nv_bfloat16>(x)) : float(x);
  view = v;
  view.data = &number;
  view.dtype = DType::f32;
  return &view;
}

}  // namespace

void test(const Queue& q, Comparison op, const TensorView& a, const TensorView& b, const TensorView& out) {
  run_elementwise<2>(q, kPacks[int(op)], kAny[int(op)], wider(compute_beside(a, b), compute_beside(b, a)), {&out, &a, &b}, true);
}

void bitwise(const Queue& q, Bitwise op, const TensorView& a, const TensorView& b, const TensorView& out) {
  run_elementwise<2>(q, nullptr, kBits[int(op)], Compute::integer, {&out, &a, &b});
}

void where(const Queue& q, const TensorView& cond, const TensorView& a, const TensorView& b, const TensorView& out) {
  const Compute c = wider(wider(compute_beside(a, b), compute_beside(b, a)), compute_of(cond.dtype));
  if (c != Compute::single) return run_elementwise<3>(q, nullptr, AnyKernels<3>::any<Choose>(), c, {&out, &cond, &a, &b});
  float numbers[2];
  TensorView views[2];
  run_elementwise<3>(q, packs_kernel<Choose, 3, true>, AnyKernels<3>::any<Choose>(), c,
                     {&out, &cond, rounded(a, out.dtype, numbers[0], views[0]), rounded(b, out.dtype, numbers[1], views[1])}, true);
}

}  // namespace halfstep::cuda
