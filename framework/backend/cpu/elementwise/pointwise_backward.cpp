// SPDX-License-Identifier: Apache-2.0
// The derivatives of the rows of pointwise.def.
#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/math/pointwise.h"

namespace halfstep::cpu {
namespace {

// in: those of g, a, b, c that the gradient names, in that order; g replaces the others.
template <class Row, int Input>
struct Sources {
  static constexpr unsigned kNames = gradient_names<Row, Input>;
  static constexpr int operand_index(int which) {
    return (kNames >> which & 1) ? __builtin_popcount(kNames & ((1u << which) - 1)) : 0;
  }
};

template <class Row, int Input, class T>
HS_CLONES void apply_single(const T* const* in, T* out, int64_t n, const void* numbers) {
  using S = Sources<Row, Input>;
  const float p = float(static_cast<const double*>(numbers)[0]), q = float(static_cast<const double*>(numbers)[1]);
  const T *g = in[0], *a = in[S::operand_index(1)], *b = in[S::operand_index(2)], *c = in[S::operand_index(3)];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i)
    out[i] = stored<T>(Row::template gradient<Input>(float(g[i]), float(a[i]), float(b[i]), float(c[i]), p, q));
}
template <class Row, int Input>
void apply_wide(const double* const* in, double* out, int64_t n, const void* numbers) {
  using S = Sources<Row, Input>;
  const double *pq = static_cast<const double*>(numbers), *g = in[0];
  const double *a = in[S::operand_index(1)], *b = in[S::operand_index(2)], *c = in[S::operand_index(3)];
  for (int64_t i = 0; i < n; ++i) out[i] = Row::template gradient<Input>(g[i], a[i], b[i], c[i], pq[0], pq[1]);
}

template <class Row, int Input>
constexpr SingleLoops single_or_none() {
  if constexpr (gradient_names<Row, Input> == 0)
    return {};
  else
    return {apply_single<Row, Input, float>, apply_single<Row, Input, bf16>};
}
template <class Row, int Input>
constexpr ElementLoop<double> wide_or_none() {
  if constexpr (gradient_names<Row, Input> == 0)
    return nullptr;
  else
    return apply_wide<Row, Input>;
}

#define HS_ROW(make, row) \
  {make<functor::pointwise::row, 0>(), make<functor::pointwise::row, 1>(), make<functor::pointwise::row, 2>()},
#define HS_POINTWISE(row, ...) HS_ROW(single_or_none, row)
constexpr SingleLoops kSingle[][3] = {
#include "framework/math/pointwise.def"
};
#define HS_POINTWISE(row, ...) HS_ROW(wide_or_none, row)
constexpr ElementLoop<double> kWide[][3] = {
#include "framework/math/pointwise.def"
};
#undef HS_ROW

}  // namespace

void pointwise_backward(Pointwise op, int input, const TensorView& grad, std::span<const TensorView> in, double p, double q,
                        const TensorView& out) {
  const unsigned names = kPointwiseRows[int(op)].names[input];
  if (names == 0) return fill(out, 0);
  TensorView used[4] = {grad};
  size_t count = 1;
  bool is_wide = grad.dtype == DType::f64 || out.dtype == DType::f64;
  for (size_t k = 0; k < in.size(); ++k) {
    if (!(names >> (k + 1) & 1)) continue;
    used[count++] = in[k];
    is_wide = is_wide || in[k].dtype == DType::f64;
  }
  const double numbers[] = {p, q};
  const std::span<const TensorView> sources(used, count);
  if (is_wide) return map<double>(out, sources, kWide[int(op)][input], numbers);
  map(out, sources, kSingle[int(op)][input], numbers);
}

}  // namespace halfstep::cpu
