// The binary rows of elementwise.def, forward and backward.
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/loops.h"

namespace halfstep::cpu {
namespace {

template <class Fn>
HS_CLONES void single(const float* const* in, float* out, int64_t n, const void*) {
  const float *a = in[0], *b = in[1];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(a[i], b[i]);
}
template <class Fn, class C>
void scalar(const C* const* in, C* out, int64_t n, const void*) {
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(in[0][i], in[1][i]);
}

template <class Fn>
HS_CLONES void single_backward(const float* const* in, float* out, int64_t n, const void*) {
  const float *grad = in[0], *a = in[1], *b = in[2];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(grad[i], a[i], b[i]);
}
template <class Fn>
void wide_backward(const double* const* in, double* out, int64_t n, const void*) {
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(in[0][i], in[1][i], in[2][i]);
}

#define HS_INTEGER_any(name) scalar<functor::name, int64_t>
#define HS_INTEGER_number HS_INTEGER_any
#define HS_INTEGER_real(name) nullptr

#define HS_UNARY(...)
#define HS_TEST(...)
#define HS_BINARY(name, ...) single<functor::name>,
constexpr Chunk<float> kSingle[] = {
#include "framework/math/elementwise.def"
};
#undef HS_BINARY
#define HS_BINARY(name, ...) scalar<functor::name, double>,
constexpr Chunk<double> kWide[] = {
#include "framework/math/elementwise.def"
};
#undef HS_BINARY
#define HS_BINARY(name, policy, kind, ...) HS_INTEGER_##kind(name),
constexpr Chunk<int64_t> kInteger[] = {
#include "framework/math/elementwise.def"
};
#undef HS_BINARY
#define HS_BINARY(name, ...) {single_backward<functor::name##_backward_a>, single_backward<functor::name##_backward_b>},
constexpr Chunk<float> kSingleBackward[][2] = {
#include "framework/math/elementwise.def"
};
#undef HS_BINARY
#define HS_BINARY(name, ...) {wide_backward<functor::name##_backward_a>, wide_backward<functor::name##_backward_b>},
constexpr Chunk<double> kWideBackward[][2] = {
#include "framework/math/elementwise.def"
};
#undef HS_BINARY
#undef HS_UNARY
#undef HS_TEST

bool heavy(Binary op) { return op == Binary::pow || op == Binary::atan2; }

}  // namespace

void binary(Binary op, const TensorView& a, const TensorView& b, const TensorView& out) {
  Compute c = wider(compute_of(a.dtype), compute_of(b.dtype));
  if (c == Compute::integer && kBinaryRows[int(op)].kind == OpKind::real) c = Compute::single;
  if (out.dtype == DType::f64 && c == Compute::single) c = Compute::wide;
  const TensorView in[] = {a, b};
  switch (c) {
    case Compute::single: return map<float>(out, in, kSingle[int(op)], nullptr, heavy(op));
    case Compute::wide: return map<double>(out, in, kWide[int(op)], nullptr, heavy(op));
    case Compute::integer: return map<int64_t>(out, in, kInteger[int(op)]);
  }
}

void binary_backward(Binary op, int input, const TensorView& grad, const TensorView& a, const TensorView& b,
                     const TensorView& out) {
  const TensorView in[] = {grad, a, b};
  const bool wide = grad.dtype == DType::f64 || a.dtype == DType::f64 || b.dtype == DType::f64 || out.dtype == DType::f64;
  if (wide) return map<double>(out, in, kWideBackward[int(op)][input], nullptr, heavy(op));
  map<float>(out, in, kSingleBackward[int(op)][input], nullptr, heavy(op));
}

}  // namespace halfstep::cpu
