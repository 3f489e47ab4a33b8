// SPDX-License-Identifier: Apache-2.0
// Sparse matrices along a dimension against the CPU backend, and that against the sum written out.
#include <algorithm>

#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// A matrix with `taps(row)` entries a row.
struct Matrix {
  Buffer start, index, weight;
  template <class Taps>
  Matrix(int64_t rows, int64_t columns, DType t, const Taps& taps) {
    int64_t n = 0;
    start = make(DType::i64, {rows + 1});
    for (int64_t o = 0; o <= rows; ++o) {
      set(start.view, o, double(n));
      if (o < rows) n += taps(o);
    }
    index = uniform(DType::i64, {n}, 7, 0, double(columns));
    for (int64_t k = 0; k + 1 < n; k += 3) set(index.view, k + 1, double((int64_t(index[k]) + 1) % columns));  // some neighbours
    weight = uniform(t, {n}, 8);
  }
  SparseRows rows() const { return {start, index, weight}; }
};

// `taps` entries in every row; 0: none, one, ... up to twelve.
Matrix matrix(int64_t rows, int64_t columns, int64_t taps, DType t) {
  return Matrix(rows, columns, t, [taps](int64_t o) { return taps ? taps : o % 13; });
}

}  // namespace

TEST_CASE("every dimension, width and number of entries") {
  for (DType t : kFloating) {
    const DType wide = t == DType::f64 ? t : DType::f32;
    for (int64_t taps : {1, 2, 3, 5, 9, 0}) {
      for (const auto& [outer, columns, rows, inner] : std::initializer_list<std::array<int64_t, 4>>{
               {1, 1, 1, 1}, {3, 31, 33, 1}, {2, 33, 257, 1}, {2, 5, 9, 31}, {3, 9, 4, 33}, {1, 4, 7, 1100}}) {
        for (DType to : {t, wide}) {
          const Matrix m = matrix(rows, columns, taps, wide);
          const Buffer x = uniform(t, {outer, columns, inner}, 1), out = poisoned(to, {outer, rows, inner}),
                       want = make(to, {outer, rows, inner});
          cpu().resample(x, 1, m.rows(), want);
          double largest = 0;
          for (int64_t i = 0; i < want.numel(); ++i) {
            const int64_t a = i / inner / rows, o = i / inner % rows, b = i % inner;
            double sum = 0;
            for (int64_t k = int64_t(m.start[o]); k < int64_t(m.start[o + 1]); ++k)
              sum += m.weight[k] * x[(a * columns + int64_t(m.index[k])) * inner + b];
            if (!close(to, want[i], sum, 2, 1e-5)) largest = std::max(largest, std::abs(want[i] - sum));
          }
          CHECK(largest == 0);
          const OnDevice dev_x(x), dev_out(out), start(m.start), index(m.index), weight(m.weight);
          cuda::resample(queue(), dev_x, 1, {start.view, index.view, weight.view}, dev_out);
          dev_out.fetch();
          check_close(out, want, 2, 1e-5, "resample");
        }
      }
    }
  }
}

TEST_CASE("from 16 bits and back through float32") {
  const Matrix m = matrix(9, 6, 2, DType::f32);
  const Buffer x = uniform(DType::f32, {4, 6, 35}, 1), out = poisoned(DType::bf16, {4, 9, 35}),
               want = make(DType::bf16, {4, 9, 35});
  cpu().resample(x, 1, m.rows(), want);
  const OnDevice dev_x(x), dev_out(out), start(m.start), index(m.index), weight(m.weight);
  cuda::resample(queue(), dev_x, 1, {start.view, index.view, weight.view}, dev_out);
  dev_out.fetch();
  check_close(out, want, 2, 1e-5, "resample");
}

TEST_CASE("the CPU's results do not depend on the threads") {
  for (int64_t inner : {1, 300}) {
    const Matrix m = matrix(90, 40, 0, DType::f32);
    const Buffer x = uniform(DType::bf16, {37, 40, inner}, 1);
    same_for_any_threads([&] {
      const Buffer out = make(DType::bf16, {37, 90, inner});
      cpu().resample(x, 1, m.rows(), out);
      return out.raw();
    });
  }
}
