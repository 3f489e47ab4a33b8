// SPDX-License-Identifier: Apache-2.0
// The binary rows of elementwise.def, forward and backward.
#include <algorithm>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/math/functors.h"

namespace halfstep::cpu {
namespace {

template <class Fn, class T>
HS_CLONES void apply_single(const T* const* in, T* out, int64_t n, const void*) {
  const T *a = in[0], *b = in[1];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(Fn{}(float(a[i]), float(b[i])));
}
template <class Fn, class C>
void apply(const C* const* in, C* out, int64_t n, const void*) {
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(in[0][i], in[1][i]);
}

template <class Fn, class T>
HS_CLONES void apply_single_backward(const T* const* in, T* out, int64_t n, const void*) {
  const T *grad = in[0], *a = in[1], *b = in[2];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = stored<T>(Fn{}(float(grad[i]), float(a[i]), float(b[i])));
}
template <class Fn>
void apply_wide_backward(const double* const* in, double* out, int64_t n, const void*) {
  for (int64_t i = 0; i < n; ++i) out[i] = Fn{}(in[0][i], in[1][i], in[2][i]);
}

// The passes of pow, each for all elements of a block: z = b log2|a|, then 2^z, then corrections where that is not a^b.
HS_CLONES void write_pow_exponents(const float* a, const float* b, double* z, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) z[i] = m::host::pow_exponent(a[i], b[i]);
}
HS_CLONES void write_powers_of_two(const double* z, float* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = m::host::pow_power(z[i]);
}
HS_CLONES bool all_powers_are_plain(const float* a, const float* b, int64_t n) {
  uint32_t special = 0;
  for (int64_t i = 0; i < n; ++i) special |= uint32_t(!m::host::pow_is_plain(a[i], b[i]));
  return special == 0;
}
HS_CLONES void correct_special_powers(const float* a, const float* b, float* power, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) power[i] = m::host::pow_domain(a[i], b[i], power[i]);
}
// power = a^b for n <= kBlock elements. `power` must be neither a nor b.
void pow_block(const float* a, const float* b, float* power, int64_t n) {
  alignas(64) double z[kBlock];
  write_pow_exponents(a, b, z, n);
  write_powers_of_two(z, power, n);
  if (!all_powers_are_plain(a, b, n)) correct_special_powers(a, b, power, n);
}

HS_CLONES void minus_one(const float* b, float* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = b[i] - 1.0f;
}
HS_CLONES void pow_gradient(const float* grad, const float* b, const float* power, float* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = b[i] == 0.0f ? 0.0f : grad[i] * b[i] * power[i];
}

// Computes pow in several passes over the block (host_float.h says why).
template <>
void apply_single<functor::pow, float>(const float* const* in, float* out, int64_t count, const void*) {
  alignas(64) float power[kBlock];
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    pow_block(in[0] + i, in[1] + i, power, n);
    std::copy_n(power, n, out + i);
  }
}
template <>
void apply_single_backward<functor::pow_backward_a, float>(const float* const* in, float* out, int64_t count, const void*) {
  alignas(64) float less[kBlock], power[kBlock];
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    minus_one(in[2] + i, less, n);
    pow_block(in[1] + i, less, power, n);
    pow_gradient(in[0] + i, in[2] + i, power, out + i, n);
  }
}

template <class Fn>
constexpr SingleLoops forward_of() {
  if constexpr (std::is_same_v<Fn, functor::pow>)
    return {apply_single<Fn, float>, nullptr};  // several passes, so none in bfloat16's registers
  else
    return {apply_single<Fn, float>, apply_single<Fn, bf16>};
}
template <class Fn>
constexpr SingleLoops backward_of() {
  if constexpr (std::is_same_v<Fn, functor::pow_backward_a>)
    return {apply_single_backward<Fn, float>, nullptr};  // as for pow
  else
    return {apply_single_backward<Fn, float>, apply_single_backward<Fn, bf16>};
}

#define HS_INTEGER_any(name) apply<functor::name, int64_t>
#define HS_INTEGER_number HS_INTEGER_any
#define HS_INTEGER_real(name) nullptr

#define HS_BINARY(name, ...) forward_of<functor::name>(),
constexpr SingleLoops kSingle[] = {
#include "framework/math/elementwise.def"
};
#define HS_BINARY(name, ...) apply<functor::name, double>,
constexpr ElementLoop<double> kWide[] = {
#include "framework/math/elementwise.def"
};
#define HS_BINARY(name, policy, kind, ...) HS_INTEGER_##kind(name),
constexpr ElementLoop<int64_t> kInteger[] = {
#include "framework/math/elementwise.def"
};
#define HS_BINARY(name, ...) {backward_of<functor::name##_backward_a>(), backward_of<functor::name##_backward_b>()},
constexpr SingleLoops kSingleBackward[][2] = {
#include "framework/math/elementwise.def"
};
#define HS_BINARY(name, ...) {apply_wide_backward<functor::name##_backward_a>, apply_wide_backward<functor::name##_backward_b>},
constexpr ElementLoop<double> kWideBackward[][2] = {
#include "framework/math/elementwise.def"
};

bool is_heavy(Binary op) { return op == Binary::pow || op == Binary::atan2; }

}  // namespace

void binary(Binary op, const TensorView& a, const TensorView& b, const TensorView& out) {
  Compute c = wider(compute_of(a.dtype), compute_of(b.dtype));
  if (c == Compute::integer && kBinaryRows[int(op)].kind == OpKind::real) c = Compute::single;
  // A number is given as a double but counts in the result's dtype, so that it does not turn float arithmetic into double.
  if (is_floating(out.dtype) && c != Compute::integer) c = compute_of(out.dtype);
  const TensorView in[] = {a, b};
  switch (c) {
    case Compute::single: return map(out, in, kSingle[int(op)], nullptr, is_heavy(op));
    case Compute::wide: return map<double>(out, in, kWide[int(op)], nullptr, is_heavy(op));
    case Compute::integer: return map<int64_t>(out, in, kInteger[int(op)]);
  }
}

void add_relu(const TensorView& a, const TensorView& b, const TensorView& out) {
  const TensorView in[] = {a, b};
  if (out.dtype == DType::f64) return map<double>(out, in, apply<functor::add_relu, double>);
  map(out, in, forward_of<functor::add_relu>());
}

void add_relu_backward(const TensorView& a, const TensorView& b, const TensorView& y, const TensorView& out) {
  const TensorView in[] = {a, b, y};
  if (out.dtype == DType::f64) return map<double>(out, in, apply_wide_backward<functor::add_relu_backward>);
  map(out, in, backward_of<functor::add_relu_backward>());
}

void binary_backward(Binary op, int input, const TensorView& grad, const TensorView& a, const TensorView& b,
                     const TensorView& out) {
  if (op == Binary::mul) return binary(op, grad, input == 0 ? b : a, out);  // reads one operand less
  const TensorView in[] = {grad, a, b};
  const bool wide = grad.dtype == DType::f64 || out.dtype == DType::f64;
  if (wide) return map<double>(out, in, kWideBackward[int(op)][input], nullptr, is_heavy(op));
  map(out, in, kSingleBackward[int(op)][input], nullptr, is_heavy(op));
}

}  // namespace halfstep::cpu
