// The unary rows of elementwise.def, forward and backward.
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/loops.h"

namespace halfstep::cpu {
namespace {

template <class Fn>
HS_CLONES void single(const float* const* in, float* out, int64_t n, const void*) {
  const float* x = in[0];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(x[i]);
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
#define HS_UNARY(name, ...) single<functor::name>,
constexpr Chunk<float> kSingle[] = {
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
    case Compute::single: return map<float>(out, in, kSingle[int(op)], nullptr, heavy(op));
    case Compute::wide: return map<double>(out, in, kWide[int(op)], nullptr, true);
    case Compute::integer: return map<int64_t>(out, in, kInteger[int(op)]);
  }
}

}  // namespace halfstep::cpu
