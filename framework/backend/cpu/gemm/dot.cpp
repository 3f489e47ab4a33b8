// SPDX-License-Identifier: Apache-2.0
// Products with one row or one column. Libraries treat them as matrices, and pack operands that are read only once.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "framework/backend/cpu/gemm/gemm.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/lanes.h"
#include "framework/backend/cpu/reduce/reduce_kernels.h"
#include "framework/backend/cpu/reduce/rows.h"

namespace halfstep::cpu {
namespace {

// Returns the sum of a[i] b[i] over i < n.
template <class C>
C dot_block(const C* a, const C* b, int64_t n) {
  return with_lanes([=](auto bytes) HS_INLINE {
    constexpr int64_t width = kLanes / int64_t(sizeof(C));
    Lanes<C, bytes> sums[4] = {}, x, y;
    int64_t i = 0;
    for (; i + 4 * width <= n; i += 4 * width) {
      for (int k = 0; k < 4; ++k) {
        load_lanes(a + i + k * width, x);
        load_lanes(b + i + k * width, y);
        sums[k] += x * y;
      }
    }
    C sum[width];
    store_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]), sum);
    for (; i < n; ++i) sum[i % width] += a[i] * b[i];
    for (int64_t half = width / 2; half > 0; half /= 2) {
      for (int64_t k = 0; k < half; ++k) sum[k] += sum[k + half];
    }
    return sum[0];
  });
}

// Computes c, a batch of products of one row a and one column b.
template <class C>
void row_by_column(const TensorView& a, const TensorView& b, const TensorView& c) {
  const bool batched = a.shape.size() == 3;
  const int64_t batch = batched ? a.shape[0] : 1, n = a.shape[a.shape.size() - 1];
  const int64_t a_batch = batched ? a.strides[0] : 0, b_batch = batched ? b.strides[0] : 0;
  const int64_t a_step = a.strides[a.shape.size() - 1], b_step = b.strides[b.shape.size() - 2];
  const int64_t grain = std::max<int64_t>(1, 8 * kBlock / std::max<int64_t>(n, 1));
  parallel_for(batch, grain, batch * n, [&](int64_t begin, int64_t end) {
    alignas(64) C left[kBlock], right[kBlock];
    for (int64_t row = begin; row < end; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < n; i += kBlock) {
        const int64_t count = std::min(kBlock, n - i);
        sum += double(dot_block(read_row<C>(a, row * a_batch + i * a_step, a_step, count, left),
                                read_row<C>(b, row * b_batch + i * b_step, b_step, count, right), count));
      }
      store_one<double>(c.dtype, sum, at(c, row));
    }
  });
}

// sums[r] = sum over i < n of a[r step + i] x[i], for rows of bfloat16. `pairs`: each whole 32 elements of x with the even i first
// and then the odd ones, because a word of a row holds one of each. A row's sum does not depend on how many rows are computed at
// once.
template <int Rows>
void dot_rows(const uint16_t* a, int64_t step, const float* x, const float* pairs, int64_t n, float* sums) {
  with_lanes([=](auto bytes) HS_INLINE {
    using V = Lanes<float, bytes>;
    V even[Rows] = {}, odd[Rows] = {}, even_x, odd_x;
    typename Lanes<uint32_t, bytes>::Part words;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
      load_lanes(pairs + i, even_x);
      load_lanes(pairs + i + 16, odd_x);
      for (int r = 0; r < Rows; ++r) {
        for (int k = 0; k < V::kParts; ++k) {
          std::memcpy(&words, a + r * step + i + 2 * k * V::kEach, sizeof words);
          even[r].part[k] += typename V::Part(words << 16) * even_x.part[k];
          odd[r].part[k] += typename V::Part(words & 0xffff0000u) * odd_x.part[k];
        }
      }
    }
    for (int r = 0; r < Rows; ++r) {
      float sum[16];
      store_lanes(even[r] + odd[r], sum);
      for (int64_t k = i; k < n; ++k) sum[k % 16] += std::bit_cast<float>(uint32_t(a[r * step + k]) << 16) * x[k];
      for (int half = 8; half > 0; half /= 2) {
        for (int k = 0; k < half; ++k) sum[k] += sum[k + half];
      }
      sums[r] = sum[0];
    }
  });
}
template <int Rows>
void dot_rows(const bf16* a, int64_t step, const float* x, const float* pairs, int64_t n, float* sums) {
  dot_rows<Rows>(reinterpret_cast<const uint16_t*>(a), step, x, pairs, n, sums);
}
template <int Rows>
void dot_rows(const f16* a, int64_t step, const float* x, const float*, int64_t n, float* sums) {
  alignas(64) float row[kBlock];
  for (int r = 0; r < Rows; ++r) {
    widen(a + r * step, row, n);
    sums[r] = dot_block(row, x, n);
  }
}

// Computes into[j] += sum over r < rows of factor[r] a[r step + j].
HS_CLONES void add_scaled(const uint16_t* a, int64_t step, const float* factor, float* into, int64_t rows, int64_t n) {
  const auto wide = [](uint16_t bits) __attribute__((always_inline)) { return std::bit_cast<float>(uint32_t(bits) << 16); };
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const uint16_t *a0 = a + r * step, *a1 = a0 + step, *a2 = a1 + step, *a3 = a2 + step;
    const float f0 = factor[r], f1 = factor[r + 1], f2 = factor[r + 2], f3 = factor[r + 3];
    HS_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) into[j] += (f0 * wide(a0[j]) + f1 * wide(a1[j])) + (f2 * wide(a2[j]) + f3 * wide(a3[j]));
  }
  for (; r < rows; ++r) {
    const uint16_t* row = a + r * step;
    HS_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) into[j] += factor[r] * wide(row[j]);
  }
}
void add_scaled(const bf16* a, int64_t step, const float* factor, float* into, int64_t rows, int64_t n) {
  add_scaled(reinterpret_cast<const uint16_t*>(a), step, factor, into, rows, n);
}
HS_CLONES void add_scaled(const float* a, float factor, float* into, int64_t n) {
  HS_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) into[j] += factor * a[j];
}
void add_scaled(const f16* a, int64_t step, const float* factor, float* into, int64_t rows, int64_t n) {
  alignas(64) float row[kBlock];
  for (int64_t r = 0; r < rows; ++r) {
    widen(a + r * step, row, n);
    add_scaled(row, factor[r], into, n);
  }
}

// c[i] = sum over j < k of a[i row + j column] x[j], i < m; row or column is 1.
struct MatrixVector {
  int64_t m, k, row, column;
  const void* a;
  const TensorView& c;
  std::vector<float> x;

  template <class T, int Rows>
  void rows_at(int64_t i, const float* pairs) const {
    double sums[Rows] = {};
    for (int64_t j = 0; j < k; j += kBlock) {
      float part[Rows];
      dot_rows<Rows>(static_cast<const T*>(a) + i * row + j, row, x.data() + j, pairs + j, std::min(kBlock, k - j), part);
      for (int r = 0; r < Rows; ++r) sums[r] += double(part[r]);
    }
    store<double>(c.dtype, sums, at(c, i), 1, Rows);
  }
  // Computes several rows at a time, because one row alone is read more slowly than memory delivers it.
  template <class T>
  void by_rows() const {
    std::vector<float> pairs(x.size());
    for (int64_t j = 0; j + 32 <= k; j += 32) {
      for (int64_t l = 0; l < 16; ++l) {
        pairs[size_t(j + l)] = x[size_t(j + 2 * l)];
        pairs[size_t(j + 16 + l)] = x[size_t(j + 2 * l + 1)];
      }
    }
    parallel_for(m, std::max<int64_t>(4, 8 * kBlock / k), m * k, [&](int64_t begin, int64_t end) {
      int64_t i = begin;
      for (; i + 4 <= end; i += 4) rows_at<T, 4>(i, pairs.data());
      for (; i < end; ++i) rows_at<T, 1>(i, pairs.data());
    });
  }
  // Keeps sums of 64 terms apart from the total, which would absorb their digits.
  template <class T>
  void by_columns() const {
    constexpr int64_t kTerms = 64, kWide = 256;
    parallel_for(m, kWide, m * k, [&](int64_t begin, int64_t end) {
      alignas(64) float total[kBlock], part[kBlock];
      for (int64_t i = begin; i < end; i += kBlock) {
        const int64_t n = std::min(kBlock, end - i);
        std::fill_n(total, n, 0.0f);
        for (int64_t j = 0; j < k; j += kTerms) {
          std::fill_n(part, n, 0.0f);
          add_scaled(static_cast<const T*>(a) + j * column + i, column, x.data() + j, part, std::min(kTerms, k - j), n);
          for (int64_t l = 0; l < n; ++l) total[l] += part[l];
        }
        store<float>(c.dtype, total, at(c, i), 1, n);
      }
    });
  }
};

// Multiplies a matrix [m, k] by a vector of k elements that are `step` apart. Returns false and does nothing if the matrix is dense
// along neither dimension.
bool matrix_by_vector(const TensorView& matrix, int rows, int columns, const TensorView& vector, int64_t step,
                      const TensorView& c) {
  const int64_t m = matrix.shape[rows], k = matrix.shape[columns];
  MatrixVector product{m, k, matrix.strides[rows], matrix.strides[columns], matrix.data, c, std::vector<float>(size_t(k))};
  const bool by_rows = product.column == 1 || k == 1;
  if (!by_rows && product.row != 1) return false;
  if (!WorkspacePlan::open()) load<float>(vector.dtype, vector.data, step, product.x.data(), k);
  if (matrix.dtype == DType::bf16)
    by_rows ? product.by_rows<bf16>() : product.by_columns<bf16>();
  else
    by_rows ? product.by_rows<f16>() : product.by_columns<f16>();
  return true;
}

}  // namespace

bool gemm_thin(const GemmArgs& g) {
  if (g.bias || g.accumulate || g.activation != Activation::none) return false;
  const int rank = g.a.shape.size(), rows = rank - 2, columns = rank - 1;
  const int64_t m = g.a.shape[rows], n = g.b.shape[columns], k = g.a.shape[columns];
  if (m == 1 && n == 1) {
    g.a.dtype == DType::f64 ? row_by_column<double>(g.a, g.b, g.c) : row_by_column<float>(g.a, g.b, g.c);
    return true;
  }
  if (g.a.dtype != DType::f16 && g.a.dtype != DType::bf16) return false;
  if (k == 1) {
    TensorView a = g.a, b = g.b;
    a.shape = b.shape = g.c.shape;
    a.strides[columns] = b.strides[rows] = 0;
    binary(Binary::mul, a, b, g.c);
    return true;
  }
  if (rank != 2) return false;
  if (n == 1) return matrix_by_vector(g.a, 0, 1, g.b, g.b.strides[0], g.c);
  return m == 1 && matrix_by_vector(g.b, 1, 0, g.a, g.a.strides[1], g.c);
}

}  // namespace halfstep::cpu
