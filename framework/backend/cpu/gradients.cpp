// SPDX-License-Identifier: Apache-2.0
// Passes over all gradients g.
//   unscale    g = g float(1 / scale); *found_inf = 1 if any g is not finite
//   norm       (sum |g|^p)^(1/p);  p = inf: max |g|;  p = 0: the number of g that are not 0
//   grad_norm  the norm for p = 2, divided by the scale; *found_inf = 1 if it is not finite, else 0
//   clip       g = g min(1, max_norm / (norm + 1e-6))
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/tensor_lists.h"
#include "framework/math/training.h"

namespace halfstep::cpu {
namespace {

// Tests f16 and bf16 by their bits: a number is not finite if its bits without the sign are at least `exponent_bits`.
HS_CLONES bool any_not_finite(const uint16_t* x, uint16_t exponent_bits, int64_t n) {
  uint16_t bad = 0;
  for (int64_t i = 0; i < n; ++i) bad |= uint16_t((x[i] & 0x7fffu) >= exponent_bits);
  return bad != 0;
}

HS_HD bool not_finite(float x) { return (std::bit_cast<uint32_t>(x) & 0x7fffffffu) >= 0x7f800000u; }
HS_HD bool not_finite(double x) { return (std::bit_cast<uint64_t>(x) & ~(uint64_t(1) << 63)) >= 0x7ff0000000000000u; }

template <class C>
HS_CLONES bool any_not_finite(const C* x, int64_t n) {
  std::conditional_t<sizeof(C) == 4, uint32_t, uint64_t> bad = 0;
  for (int64_t i = 0; i < n; ++i) bad |= not_finite(x[i]);
  return bad != 0;
}

// Computes out = factor in; returns whether any of `in` is inf or NaN.
template <class C>
HS_CLONES bool scale_and_check(const C* in, C* out, C factor, int64_t n) {
  std::conditional_t<sizeof(C) == 4, uint32_t, uint64_t> bad = 0;
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const C v = in[i];
    bad |= not_finite(v);
    out[i] = v * factor;
  }
  return bad != 0;
}

template <class F>
void with_float_or_double(DType t, F&& f) {
  if (t == DType::f64)
    f(double{});
  else
    f(float{});
}

// Multiplies by `factor` (a factor of 1 keeps the bits) and returns whether a value was inf or NaN before.
bool scale_and_check_all(std::span<const TensorView> tensors, float factor) {
  const std::vector<TensorPiece> pieces = pieces_of(tensors);
  std::atomic<bool> found = false;
  for_pieces(pieces, [&](size_t index) {
    const TensorPiece& piece = pieces[index];
    const TensorView& g = tensors[piece.tensor];
    const Space s(g.shape, {&g.strides});
    if (factor == 1 && is_half(g.dtype) && s.dense(0)) {  // reads them without widening
      const uint16_t exponent_bits = g.dtype == DType::f16 ? 0x7c00 : 0x7f80;
      const int64_t n = std::min(piece.end, s.numel) - piece.begin;
      if (any_not_finite(g.as<const uint16_t>() + piece.begin, exponent_bits, n)) found.store(true, std::memory_order_relaxed);
      return;
    }
    with_float_or_double(g.dtype, [&](auto tag) {
      using C = decltype(tag);
      alignas(64) C buffer[kBlock];
      bool found_here = false;
      for (int64_t i = piece.begin; i < piece.end; i += kBlock) {
        const int64_t n = std::min(kBlock, piece.end - i);
        const C* in = fetch<C>(s, 0, g, i, n, buffer);
        if (factor == 1) {
          found_here |= any_not_finite(in, n);
        } else {
          C* out = const_cast<C*>(in);  // the gradient itself, or the buffer
          found_here |= scale_and_check(in, out, C(factor), n);
          if (out == buffer) put<C>(s, 0, g, i, n, out);
        }
      }
      if (found_here) found.store(true, std::memory_order_relaxed);
    });
  });
  return found.load();
}

HS_CLONES double sum_of_squares(const float* x, int64_t n) {
  double lane[16] = {};  // of element i: sum i % 16, whatever the instruction set
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int k = 0; k < 16; ++k) lane[k] += double(x[i + k]) * double(x[i + k]);
  }
  for (; i < n; ++i) lane[i % 16] += double(x[i]) * double(x[i]);
  double sum = 0;
  for (double v : lane) sum += v;
  return sum;
}

double sum_of_powers(const float* x, int64_t n, double p) {
  double sum = 0;
  if (p == 1) {
    for (int64_t i = 0; i < n; ++i) sum += std::fabs(double(x[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) sum += p == 0 ? double(x[i] != 0) : std::pow(std::fabs(double(x[i])), p);
  }
  return sum;
}

double sum_of_powers(const double* x, int64_t n, double p) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += p == 0 ? double(x[i] != 0) : p == 2 ? x[i] * x[i] : std::pow(std::fabs(x[i]), p);
  return sum;
}

// Returns the largest |x|; NaN if any x is NaN.
template <class C>
double largest(const C* x, int64_t n) {
  double top = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double v = std::fabs(double(x[i]));
    top = v > top || v != v ? v : top;
    if (top != top) break;
  }
  return top;
}

double norm_of(std::span<const TensorView> tensors, double p) {
  const std::vector<TensorPiece> pieces = pieces_of(tensors);
  std::vector<double> partial(pieces.size());
  const bool maximum = std::isinf(p);
  for_pieces(pieces, [&](size_t index) {
    const TensorPiece& piece = pieces[index];
    const TensorView& v = tensors[piece.tensor];
    with_float_or_double(v.dtype, [&](auto tag) {
      using C = decltype(tag);
      const Space s(v.shape, {&v.strides});
      alignas(64) C buffer[kBlock];
      double value = 0;
      for (int64_t i = piece.begin; i < piece.end; i += kBlock) {
        const int64_t n = std::min(kBlock, piece.end - i);
        const C* x = fetch<C>(s, 0, v, i, n, buffer);
        if (maximum) {
          const double top = largest(x, n);
          value = top > value || top != top ? top : value;
        } else if constexpr (std::is_same_v<C, double>) {
          value += sum_of_powers(x, n, p);
        } else {
          value += p == 2 ? sum_of_squares(x, n) : sum_of_powers(x, n, p);
        }
      }
      partial[index] = value;
    });
  });
  double total = 0;
  for (double v : partial) total = !maximum ? total + v : (v > total || v != v) && total == total ? v : total;
  return maximum || p == 1 || p == 0 ? total : p == 2 ? std::sqrt(total) : std::pow(total, 1 / p);
}

}  // namespace

void check_finite(std::span<const TensorView> grads, float* found_inf) {
  if (scale_and_check_all(grads, 1.0f)) *found_inf = 1.0f;
}

void unscale(std::span<const TensorView> grads, const float* scale, float* found_inf) {
  if (scale_and_check_all(grads, float(1 / double(*scale)))) *found_inf = 1.0f;
}

void norm(std::span<const TensorView> tensors, double p, float* out) { *out = float(norm_of(tensors, p)); }

void grad_norm(std::span<const TensorView> grads, const float* scale, float* out, float* found_inf) {
  const double norm = norm_of(grads, 2);
  *out = float(scale ? norm / double(*scale) : norm);
  if (found_inf) *found_inf = not_finite(norm) ? 1.0f : 0.0f;
}

void clip(std::span<const TensorView> tensors, const float* norm, double max_norm) {
  scale_and_check_all(tensors, math::clip_factor(*norm, max_norm));
}

}  // namespace halfstep::cpu
