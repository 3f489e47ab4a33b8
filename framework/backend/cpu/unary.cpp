// The unary rows of elementwise.def, forward and backward.
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/loops.h"

namespace halfstep::cpu {
namespace {

template <class Fn, class T>
HS_CLONES void single(const T* const* in, T* out, int64_t n, const void*) {
  const T* x = in[0];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(Fn{}(float(x[i])));
}
// The square of a bfloat16 is exact, which makes the same numbers of fewer steps.
template <>
HS_CLONES void single<functor::gelu, bf16>(const bf16* const* in, bf16* out, int64_t n, const void*) {
  const bf16* x = in[0];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const float v = float(x[i]);
    out[i] = stored<bf16>(v * m::host::normal_cdf(v, m::host::brief_bell(v)));
  }
}
template <class Fn, class C>
void scalar(const C* const* in, C* out, int64_t n, const void*) {
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(in[0][i]);
}

// Only `any` rows exist for integers.
#define HS_INTEGER_any(name) scalar<functor::name, int64_t>
#define HS_INTEGER_number HS_INTEGER_any
#define HS_INTEGER_real(name) nullptr

#define HS_BINARY(...)
#define HS_TEST(...)
#define HS_UNARY(name, ...) {single<functor::name, float>, single<functor::name, bf16>},
constexpr SingleChunk kSingle[] = {
#include "framework/math/elementwise.def"
};
#undef HS_UNARY
#define HS_UNARY(name, ...) scalar<functor::name, double>,
constexpr Chunk<double> kWide[] = {
#include "framework/math/elementwise.def"
};
#undef HS_UNARY
#define HS_UNARY(name, policy, kind, ...) HS_INTEGER_##kind(name),
constexpr Chunk<int64_t> kInteger[] = {
#include "framework/math/elementwise.def"
};
#undef HS_UNARY
#undef HS_BINARY
#undef HS_TEST

// Rows that cost as much as reading a few elements need fewer of them before a second thread pays.
bool heavy(Unary op) { return kUnaryRows[int(op)].kind == OpKind::real; }

}  // namespace

void unary(Unary op, const TensorView& x, const TensorView& out) {
  Compute c = compute_of(x.dtype);
  if (c == Compute::integer && kUnaryRows[int(op)].kind == OpKind::real) c = Compute::single;
  if (out.dtype == DType::f64 && c == Compute::single) c = Compute::wide;
  const std::span in(&x, 1);
  switch (c) {
    case Compute::single: return map(out, in, kSingle[int(op)], nullptr, heavy(op));
    case Compute::wide: return map<double>(out, in, kWide[int(op)], nullptr, true);
    case Compute::integer: return map<int64_t>(out, in, kInteger[int(op)]);
  }
}

}  // namespace halfstep::cpu
