// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the fake cuBLASLt, as the comments of cublasLt.h describe it.
#include "tests/emulators/fake_cublaslt/product.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "cuda/gpu.cuh"

namespace emu {
namespace {

// Gives `body` a null pointer of the type's element.
template <class F>
void with_type(cudaDataType_t type, const F& body) {
  switch (type) {
    case CUDA_R_16F: return body(static_cast<__half*>(nullptr));
    case CUDA_R_16BF: return body(static_cast<__nv_bfloat16*>(nullptr));
    case CUDA_R_32F: return body(static_cast<float*>(nullptr));
    case CUDA_R_64F: return body(static_cast<double*>(nullptr));
    default: fail("cuBLASLt: elements of type %d", int(type));
  }
}

// To the ten bits that TF32 keeps.
template <class S>
S rounded_to_tf32(S x) {
  const float f = float(x);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  bits = (bits + 0xFFF + (bits >> 13 & 1)) & ~uint32_t(0x1FFF);
  float rounded;
  std::memcpy(&rounded, &bits, 4);
  return S(rounded);
}

// A matrix by its rows, or by its columns, whichever the product runs along; every `step`-th of them.
template <class T, class S>
std::vector<S> gathered(const T* from, const FakeLayout& layout, bool by_columns, bool tf32, int64_t step) {
  std::vector<S> to;
  const int64_t outer = by_columns ? layout.columns : layout.rows, inner = by_columns ? layout.rows : layout.columns;
  to.reserve(size_t((outer + step - 1) / step * inner));
  for (int64_t o = 0; o < outer; o += step) {
    for (int64_t i = 0; i < inner; ++i) {
      const S x = S(halfstep::cuda::to_float(from[by_columns ? o * layout.ld + i : i * layout.ld + o]));
      to.push_back(tf32 ? rounded_to_tf32(x) : x);
    }
  }
  return to;
}

template <class S>
S gelu(S x) {
  return S(0.5) * x * (S(1) + std::tanh(S(0.79788456080286536) * (x + S(0.044715) * x * x * x)));
}
template <class S>
S gelu_slope(S x) {
  const S t = std::tanh(S(0.79788456080286536) * (x + S(0.044715) * x * x * x));
  return S(0.5) * (S(1) + t) + S(0.5) * x * (S(1) - t * t) * S(0.79788456080286536) * (S(1) + S(3 * 0.044715) * x * x);
}

// As tensor cores add up to `n` products and the sum so far: all are cut off below the last bit that a float as large as the
// largest of them has, and so is the total. A rounding of each step would err by half as much, and not always towards zero.
float add_truncated(float sum, const float* a, const float* b, int64_t n) {
  double largest = std::abs(double(sum)), plain = sum;
  for (int64_t i = 0; i < n; ++i) {
    const double product = double(a[i]) * double(b[i]);
    largest = std::max(largest, std::abs(product));
    plain += product;
  }
  if (largest == 0 || !std::isfinite(plain)) return float(plain);
  const double unit = std::ldexp(1.0, std::ilogb(largest) - 23);
  double total = std::trunc(double(sum) / unit);
  for (int64_t i = 0; i < n; ++i) total += std::trunc(double(a[i]) * double(b[i]) / unit);
  const double exact = total * unit;
  const float rounded = float(exact);
  return std::abs(double(rounded)) > std::abs(exact) && std::isfinite(rounded) ? std::nextafter(rounded, 0.0f) : rounded;
}

template <class In, class Out, class S>
class Computation {
 public:
  Computation(const FakeProduct& product, bool all)
      : p_(product),
        op_(product.op),
        step_(all ? 1 : std::max<int64_t>(1, p_.n() - 1)),
        row_step_(all ? 1 : std::max<int64_t>(1, p_.m())) {}

  void run() {
    if (op_.has(kBiasGradient | kSumA | kSumB)) sums_.assign(size_t(p_.vector_elements()), S(0));
    for (int64_t t = 0; t < p_.d.batch; ++t) multiply(t);
    for (size_t i = 0; i < sums_.size(); ++i) vector()[i] = halfstep::cuda::from_float<Out>(sums_[i]);
  }

 private:
  void multiply(int64_t t) {
    const int64_t m = p_.m(), n = p_.n(), k = p_.k();
    const bool tf32 = op_.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const auto a = gathered<In, S>(static_cast<const In*>(p_.a_data) + t * p_.a.stride, p_.a, op_.transposed_a, tf32, row_step_);
    const auto b = gathered<In, S>(static_cast<const In*>(p_.b_data) + t * p_.b.stride, p_.b, !op_.transposed_b, tf32, step_);
    const Out* const c = static_cast<const Out*>(p_.c_data) + t * p_.c.stride;
    Out* const d = static_cast<Out*>(p_.d_data) + t * p_.d.stride;
    for (int64_t j = 0; j < n; j += step_) {
      for (int64_t i = 0; i < m; ++i) {
        // BLAS: with a factor of 0 the operands are not read, and code that only scales C sets no bit of a mask.
        S x = p_.alpha == 0 ? S(0) : S(p_.alpha) * dot(&a[size_t(i / row_step_ * k)], &b[size_t(j / step_ * k)], k);
        if (p_.beta != 0) x += S(p_.beta) * S(halfstep::cuda::to_float(c[j * p_.c.ld + i]));
        d[j * p_.d.ld + i] = halfstep::cuda::from_float<Out>(finished(x, i, j));
      }
    }
    const std::vector<S>& summed = op_.has(kSumA) ? a : b;
    if (op_.has(kSumA | kSumB)) {
      for (size_t i = 0; i < summed.size(); ++i) sums_[i / size_t(k)] += summed[i];
    }
  }

  S dot(const S* a, const S* b, int64_t k) const {
    const int64_t part = (k + p_.splits - 1) / p_.splits;
    S sum = 0;
    for (int64_t from = 0; from < k; from += part) sum += part_of(a + from, b + from, std::min(part, k - from));
    return sum;
  }
  S part_of(const S* a, const S* b, int64_t n) const {
    S sum = 0;
    if constexpr (std::is_same_v<S, float>) {
      if (p_.block > 1 && (!std::is_same_v<In, float> || op_.compute == CUBLAS_COMPUTE_32F_FAST_TF32)) {
        for (int64_t l = 0; l < n; l += p_.block) sum = add_truncated(sum, a + l, b + l, std::min<int64_t>(p_.block, n - l));
        return sum;
      }
    }
    for (int64_t l = 0; l < n; ++l) sum += a[l] * b[l];
    return sum;
  }

  // The epilogue, for row i and column j of D.
  S finished(S x, int64_t i, int64_t j) {
    const int64_t at = j * op_.aux_ld + i;
    uint8_t* const byte = static_cast<uint8_t*>(op_.aux) + at / 8;
    Out* const z = static_cast<Out*>(op_.aux) + at;
    const int bit = 1 << at % 8;
    if (op_.has(kBias)) x += S(halfstep::cuda::to_float(vector()[i]));
    if (op_.has(kRelu)) {
      const bool passes = p_.hides_nan ? x > 0 : !(x <= 0), marked = passes || (p_.mask_at_zero && x == 0 && p_.alpha != 0);
      if (op_.has(kAux)) *byte = uint8_t(marked ? *byte | bit : *byte & ~bit);
      if (!passes) x = 0;
    }
    if (op_.has(kGelu)) {
      if (op_.has(kAux)) *z = halfstep::cuda::from_float<Out>(x);
      x = gelu(x);
    }
    if (op_.has(kReluGradient) && !(*byte & bit)) x = 0;
    if (op_.has(kGeluGradient)) x *= gelu_slope(S(halfstep::cuda::to_float(*z)));
    if (op_.has(kBiasGradient)) sums_[size_t(i)] += x;
    return x;
  }

  Out* vector() const { return static_cast<Out*>(op_.vector); }

  const FakeProduct& p_;
  const FakeOperation& op_;
  const int64_t step_, row_step_;  // from column to column of D; and of A's rows, of which the first may be for all
  std::vector<S> sums_;
};

}  // namespace

int64_t size_of(cudaDataType_t type) {
  int64_t bytes = 0;
  with_type(type, [&](auto* element) { bytes = sizeof *element; });
  return bytes;
}

size_t FakeProduct::aux_bytes() const {
  if (!op.has(kAux)) return 0;
  if (op.has(kRelu | kReluGradient)) return size_t(n() * op.aux_ld / 8);
  return size_t(((n() - 1) * op.aux_ld + m()) * size_of(d.type));
}

namespace {

void compute(const FakeProduct& p, bool all) {
  with_type(p.a.type, [&](auto* in) {
    using In = std::remove_pointer_t<decltype(in)>;
    if constexpr (std::is_same_v<In, double>) {
      Computation<double, double, double>(p, all).run();
    } else {
      if (p.d.type == p.a.type)
        Computation<In, In, float>(p, all).run();
      else
        Computation<In, float, float>(p, all).run();
    }
  });
}

}  // namespace

void compute(const FakeProduct& p) { compute(p, true); }
void compute_ends(const FakeProduct& p) { compute(p, false); }

}  // namespace emu
