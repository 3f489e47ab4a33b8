// SPDX-License-Identifier: Apache-2.0
// The rows of pointwise.def, forward.
#include "framework/math/pointwise.h"

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"

namespace halfstep::cpu {
namespace {

// in: one array per input of the row; missing ones repeat another. numbers: p and q.
template <class Row, int Arity, class T>
HS_CLONES void apply_single(const T* const* in, T* out, int64_t n, const void* numbers) {
  const float p = float(static_cast<const double*>(numbers)[0]), q = float(static_cast<const double*>(numbers)[1]);
  const T *a = in[0], *b = in[Arity > 1 ? 1 : 0], *c = in[Arity > 2 ? 2 : 0];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(Row{}(float(a[i]), float(b[i]), float(c[i]), p, q));
}
template <class Row, int Arity>
void apply_wide(const double* const* in, double* out, int64_t n, const void* numbers) {
  const double *pq = static_cast<const double*>(numbers), *a = in[0], *b = in[Arity > 1 ? 1 : 0], *c = in[Arity > 2 ? 2 : 0];
  for (int64_t i = 0; i < n; ++i) out[i] = Row{}(a[i], b[i], c[i], pq[0], pq[1]);
}

#define HS_POINTWISE(row, op, arity, ...) \
  {apply_single<functor::pointwise::row, arity, float>, apply_single<functor::pointwise::row, arity, bf16>},
constexpr SingleLoops kSingle[] = {
#include "framework/math/pointwise.def"
};
#define HS_POINTWISE(row, op, arity, ...) apply_wide<functor::pointwise::row, arity>,
constexpr ElementLoop<double> kWide[] = {
#include "framework/math/pointwise.def"
};

}  // namespace

void pointwise(Pointwise op, std::span<const TensorView> in, double p, double q, const TensorView& out) {
  bool is_wide = out.dtype == DType::f64;
  for (const TensorView& v : in) is_wide = is_wide || v.dtype == DType::f64;
  const double numbers[] = {p, q};
  if (is_wide) return map<double>(out, in, kWide[int(op)], numbers);
  map(out, in, kSingle[int(op)], numbers);
}

}  // namespace halfstep::cpu
