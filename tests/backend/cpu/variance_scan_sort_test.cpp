// SPDX-License-Identifier: Apache-2.0
// Variances, scans and sorting at sizes that are cut into segments, against plain loops.
#include <algorithm>
#include <numeric>

#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

Shape with_one(Shape shape, int dim) {
  shape[dim] = 1;
  return shape;
}

// Element i of line `line` along dim, as a row-major index of `shape`.
int64_t index_of(const Shape& shape, int dim, int64_t line, int64_t i) {
  int64_t inner = 1;
  for (int d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  return line / inner * inner * shape[dim] + i * inner + line % inner;
}

void check_variance(DType t, const Shape& shape, int dim, double lo, double hi, Layout layout = Layout::dense) {
  const Buffer x = uniform(t, shape, 1, lo, hi, layout), mean = make(DType::f64, with_one(shape, dim)),
               var = make(t, with_one(shape, dim));
  cpu().variance(x, 1, mean, var);
  const int64_t n = shape[dim];
  for (int64_t line = 0; line < var.numel(); ++line) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[index_of(shape, dim, line, i)];
    for (int64_t i = 0; i < n; ++i) {
      const double d = x[index_of(shape, dim, line, i)] - sum / double(n);
      squares += d * d;
    }
    const bool ok = close(t, var[line], squares / double(n - 1), 2, 2e-6 * (hi - lo)) &&
                    close(DType::f32, mean[line], sum / double(n), 2, 1e-6 * (hi - lo));
    REQUIRE_MESSAGE(ok, name(t), " ", shape, " line ", line, ": ", var[line], ", not ", squares / double(n - 1));
  }
}

void check_scan(DType t, const Shape& shape, int dim, bool reverse, Layout layout = Layout::dense) {
  const DType to = is_floating(t) ? t : DType::i64;
  const Buffer x = uniform(t, shape, 2, -1, 2, layout), out = make(to, shape);
  cpu().scan(Scan::sum, x, dim, reverse, out);
  const int64_t n = shape[dim];
  for (int64_t line = 0; line < out.numel() / n; ++line) {
    double sum = 0;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = index_of(shape, dim, line, reverse ? n - 1 - k : k);
      sum += x[i];
      REQUIRE(close(to, out[i], sum, 2, 1e-5 * double(k)));
    }
  }
}

void check_sort(DType t, const Shape& shape, int dim, bool descending, int64_t k, Layout layout = Layout::dense) {
  Shape few = shape;
  few[dim] = k;
  const Buffer x = uniform(t, shape, 3, -60, 60, layout), values = make(t, few), indices = make(DType::i64, few);
  cpu().sort(x, dim, descending, k, values, indices);
  const int64_t n = shape[dim];
  for (int64_t line = 0; line < values.numel() / k; ++line) {
    std::vector<double> row;
    for (int64_t i = 0; i < n; ++i) row.push_back(x[index_of(shape, dim, line, i)]);
    std::vector<int64_t> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return descending ? row[size_t(a)] > row[size_t(b)] : row[size_t(a)] < row[size_t(b)];
    });
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = index_of(few, dim, line, i);
      REQUIRE(indices[at] == double(order[size_t(i)]));
      REQUIRE(values[at] == row[size_t(order[size_t(i)])]);
    }
  }
}

}  // namespace

TEST_CASE("variance of rows, columns and several segments") {
  for (DType t : kFloating) {
    check_variance(t, {3, 1025}, 1, -2, 2);
    check_variance(t, {1025, 300}, 0, -2, 2);
    check_variance(t, {2, 37, 20}, 1, 0, 3, Layout::sliced);
  }
  check_variance(DType::f32, {2, 70000}, 1, 9999, 10001);  // far from zero
  check_variance(DType::f32, {600, 9}, 0, 9999, 10001);
}

TEST_CASE("running sums of rows, columns and several segments") {
  for (DType t : {DType::f32, DType::bf16, DType::f64, DType::i32}) {
    for (bool reverse : {false, true}) {
      for (int64_t n : {1, 2, 3, 5, 63, 64, 1025}) check_scan(t, {2, n}, 1, reverse);
      check_scan(t, {65, 600}, 0, reverse);
      check_scan(t, {3, 20, 9}, 1, reverse, Layout::transposed);
    }
  }
  check_scan(DType::f32, {2, 140000}, 1, false);
  check_scan(DType::f64, {140001, 2}, 0, true);
}

TEST_CASE("an infinity in running sums reaches what follows, and nothing before") {
  for (int64_t at = 0; at < 9; ++at) {
    const Buffer x = make(DType::f32, {9}), y = make(DType::f32, {9});
    cpu().fill(x, 1);
    set(x.view, at, HUGE_VAL);
    cpu().scan(Scan::sum, x, 0, false, y);
    for (int64_t i = 0; i < 9; ++i) CHECK(y[i] == (i < at ? double(i + 1) : HUGE_VAL));
  }
}

TEST_CASE("sorting by comparing, by digits and of few among many") {
  for (DType t : kAll) {
    for (int64_t n : {1, 255, 256, 3000}) {
      check_sort(t, {2, n}, 1, n % 2 == 0, n);
      check_sort(t, {2, n}, 1, n % 2 == 1, (n + 2) / 3);
    }
    check_sort(t, {20, 3, 2}, 0, true, 5, Layout::sliced);
  }
  for (int64_t k : {1, 10, 2000, 24000}) check_sort(DType::f32, {1, 50000}, 1, k == 10, k);
}

TEST_CASE("the same bits for any number of threads") {
  const Buffer x = uniform(DType::f32, {7, 140000}, 4);
  const Buffer mean = make(DType::f32, {7, 1}), var = make(DType::f32, {7, 1}), sums = make(DType::f32, {7, 140000});
  const Buffer columns = make(DType::f32, {1, 140000}), values = make(DType::f32, {7, 9}), indices = make(DType::i64, {7, 9});
  same_for_any_threads([&] {
    cpu().variance(x, 1, mean, var);
    cpu().variance(x, 1, {}, columns);
    cpu().scan(Scan::sum, x, 1, false, sums);
    cpu().sort(x, 1, true, 9, values, indices);
    return mean.raw() + var.raw() + columns.raw() + sums.raw() + values.raw() + indices.raw();
  });
}
