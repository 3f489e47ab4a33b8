// SPDX-License-Identifier: Apache-2.0
// The derivatives of the unary rows of elementwise.def.
#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/math/functors.h"

namespace halfstep::cpu {
namespace {

template <class Fn, class T>
HS_CLONES void apply_single(const T* const* in, T* out, int64_t n, const void*) {
  const T *grad = in[0], *saved = in[1];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(Fn{}(float(grad[i]), float(saved[i])));
}
template <class Fn>
void apply_wide(const double* const* in, double* out, int64_t n, const void*) {
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(in[0][i], in[1][i]);
}

#define HS_UNARY(name, ...) {apply_single<functor::name##_backward, float>, apply_single<functor::name##_backward, bf16>},
constexpr SingleLoops kSingle[] = {
#include "framework/math/elementwise.def"
};
#define HS_UNARY(name, ...) apply_wide<functor::name##_backward>,
constexpr ElementLoop<double> kWide[] = {
#include "framework/math/elementwise.def"
};

}  // namespace

void unary_backward(Unary op, const TensorView& grad, const TensorView& saved, const TensorView& out) {
  // A row that saves nothing may have an empty `saved`; any operand of the right shape replaces it.
  const TensorView in[] = {grad, saved ? saved : grad};
  const bool is_wide = grad.dtype == DType::f64 || in[1].dtype == DType::f64 || out.dtype == DType::f64;
  const bool is_heavy = kUnaryRows[int(op)].kind == OpKind::real;
  if (is_wide) return map<double>(out, in, kWide[int(op)], nullptr, true);
  map(out, in, kSingle[int(op)], nullptr, is_heavy);
}

void unary_summed_backward(Unary op, const TensorView& grad, const TensorView& saved, const TensorView& out,
                           const TensorView& sums) {
  unary_backward(op, grad, saved, out);
  reduce(Reduce::sum, out, as_row(sums));
}

}  // namespace halfstep::cpu
