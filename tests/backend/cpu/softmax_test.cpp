// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// f(offsets of a row's elements) for every row along dim.
template <class F>
void each_row(const Shape& shape, int dim, const F& f) {
  int64_t inner = 1;
  for (int d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  const int64_t n = shape[dim], outer = numel(shape) / std::max<int64_t>(n * inner, 1);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      std::vector<int64_t> at;
      for (int64_t k = 0; k < n; ++k) at.push_back((o * n + k) * inner + i);
      f(at);
    }
  }
}

}  // namespace

TEST_CASE("softmax and log_softmax, forward and backward, along every dimension") {
  for (DType t : kFloating) {
    for (Layout layout : kLayouts) {
      for (const Shape& shape : {Shape{6, 35}, Shape{3, 4, 5}, Shape{40, 300}, Shape{2, 0}, Shape{0, 2}, Shape{1}}) {
        const Buffer x = uniform(t, shape, 1, -8, 8, layout), g = uniform(t, shape, 2);
        for (int dim = 0; dim < shape.size(); ++dim) {
          for (bool log : {false, true}) {
            const Buffer y = make(t, shape), dx = make(t, shape);
            cpu().softmax(x, y, dim, log);
            cpu().softmax_backward(g, y, dx, dim, log);
            bool ok = true;
            each_row(shape, dim, [&](const std::vector<int64_t>& at) {
              double top = -1e300, sum = 0, dot = 0, total = 0;
              for (int64_t i : at) top = std::max(top, x[i]);
              for (int64_t i : at) sum += std::exp(x[i] - top);
              for (int64_t i : at) dot += g[i] * y[i], total += g[i];
              const double slack = t == DType::f64 ? 1e-13 : 1e-5;
              for (int64_t i : at) {
                const double p = std::exp(x[i] - top) / sum, l = x[i] - top - std::log(sum);
                ok = ok && close(t, y[i], log ? l : p, 8, log ? slack : slack * p);
                ok = ok && close(t, dx[i], log ? g[i] - std::exp(y[i]) * total : y[i] * (g[i] - dot), 8, slack);
              }
            });
            CHECK_MESSAGE(ok, name(t), " dim ", dim, " log ", log);
          }
        }
      }
    }
  }
}

TEST_CASE("softmax of 16-bit inputs into float32") {
  const Buffer x = uniform(DType::bf16, {5, 33}, 1), y = make(DType::f32, {5, 33});
  cpu().softmax(x, y, 1, false);
  for (int64_t r = 0; r < 5; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < 33; ++c) sum += y[r * 33 + c];
    CHECK(sum == doctest::Approx(1).epsilon(1e-6));
  }
}

TEST_CASE("large logits do not overflow; NaN and all -inf give NaN; one -inf gives 0") {
  const double inf = std::numeric_limits<double>::infinity();
  const Buffer x = make(DType::f32, {4, 2}, {1e30, 1e30, std::nan(""), 0, -inf, -inf, -inf, 3}), y = make(DType::f32, {4, 2});
  cpu().softmax(x, y, 1, false);
  CHECK(y[0] == 0.5);
  CHECK(std::isnan(y[2]));
  CHECK(std::isnan(y[3]));
  CHECK(std::isnan(y[4]));
  CHECK(y[6] == 0);
  CHECK(y[7] == 1);
  cpu().softmax(x, y, 1, true);
  CHECK(y[6] == -inf);
  CHECK(y[7] == 0);
}

TEST_CASE("softmax does not depend on the number of threads") {
  const Buffer x = uniform(DType::f32, {300, 123}, 1), g = uniform(DType::f32, {300, 123}, 2);
  same_for_any_threads([&] {
    const Buffer y = make(DType::f32, {300, 123}), dx = make(DType::f16, {300, 123});
    cpu().softmax(x, y, 0, false);
    cpu().softmax_backward(g, y, dx, 1, true);
    return y.raw() + dx.raw();
  });
}
