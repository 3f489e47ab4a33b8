// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Reference {
  std::vector<double> value, magnitude;  // and the sum of |terms|, which bounds the rounding of the accumulation
};

Reference naive(const GemmArgs& g, const std::vector<double>& before) {
  const int r = g.a.shape.size();
  const int64_t batch = r == 3 ? g.a.shape[0] : 1, m = g.a.shape[r - 2], k = g.a.shape[r - 1], n = g.c.shape[r - 1];
  const std::vector<double> as = values_of(g.a), bs = values_of(g.b);
  Reference out;
  for (int64_t i = 0; i < batch * m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = g.bias ? get(g.bias, j) : 0, size = std::abs(sum);
      const double *const a = as.data() + i * k, *const b = bs.data() + i / m * k * n + j;
      for (int64_t l = 0; l < k; ++l) {
        const double term = a[l] * b[l * n];
        sum += term;
        size += std::abs(term);
      }
      if (g.activation == Activation::relu && sum < 0) sum = 0;
      if (g.accumulate) sum += before[size_t(i * n + j)];
      out.value.push_back(sum);
      out.magnitude.push_back(size);
    }
  }
  return out;
}

void check_gemm(const GemmArgs& g) {
  std::vector<double> before;
  for (int64_t i = 0; i < g.c.numel(); ++i) before.push_back(get(g.c, i));
  const Reference want = naive(g, before);
  cpu().gemm(g);
  bool ok = true;
  const double unit = g.a.dtype == DType::f64 ? 1e-15 : 1e-6;
  for (int64_t i = 0; i < g.c.numel(); ++i) {
    ok = ok && close(g.c.dtype, get(g.c, i), want.value[size_t(i)], 1.01, unit * (1 + want.magnitude[size_t(i)]));
  }
  CHECK_MESSAGE(ok, name(g.a.dtype), " -> ", name(g.c.dtype), " ", g.a.shape[0], "x", g.a.shape.back(), "x", g.b.shape.back());
}

}  // namespace

TEST_CASE("gemm over dtypes, sizes and transposes") {
  const int64_t sizes[][3] = {{1, 1, 1}, {1, 7, 5}, {5, 1, 3}, {3, 4, 1}, {8, 33, 17}, {9, 16, 64}, {64, 70, 65}, {130, 31, 257}};
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64}) {
    for (const auto& [m, k, n] : sizes) {
      for (int layout = 0; layout < 4; ++layout) {
        for (int64_t pad : {0, 3}) {
          const Buffer a = operand(t, {m, k}, layout & 1, 1, pad), b = operand(t, {k, n}, layout & 2, 2, pad), c = make(t, {m, n});
          check_gemm({.a = a, .b = b, .c = c});
          if (!is_half(t)) continue;
          const Buffer wide = make(DType::f32, {m, n});
          check_gemm({.a = a, .b = b, .c = wide});
        }
      }
    }
  }
}

TEST_CASE("products that are cut by their shapes") {
  const ByShape cut;
  set_num_threads(3);
  const int64_t sizes[][3] = {{33, 100, 400}, {20, 200, 300}, {130, 61, 257}};
  for (DType t : {DType::f32, DType::bf16}) {
    for (const auto& [m, k, n] : sizes) {
      for (int layout = 0; layout < 4; ++layout) {
        const Buffer a = operand(t, {m, k}, layout & 1, 1, 0), b = operand(t, {k, n}, layout & 2, 2, 0),
                     bias = uniform(DType::f32, {n}, 3);
        check_gemm({.a = a, .b = b, .c = make(t, {m, n}), .bias = bias, .activation = Activation::relu});
      }
    }
  }
}

TEST_CASE("products of float32 whose operands have lines 4 kB apart") {
  const int64_t sizes[][3] = {{17, 33, 1024}, {512, 33, 40}, {20, 1024, 33}};
  for (const auto& [m, k, n] : sizes) {
    for (int layout = 0; layout < 4; ++layout) {
      const Buffer a = operand(DType::f32, {m, k}, layout & 1, 1, 0), b = operand(DType::f32, {k, n}, layout & 2, 2, 0),
                   bias = uniform(DType::f32, {n}, 3), c = make(DType::f32, {m, n});
      check_gemm({.a = a, .b = b, .c = c});
      check_gemm({.a = a, .b = b, .c = c, .bias = bias, .activation = Activation::relu});
      check_gemm({.a = a, .b = b, .c = c, .accumulate = true});
    }
  }
}

TEST_CASE("16-bit products with a single row, column or term") {
  const int64_t sizes[][3] = {{1, 1300, 70}, {71, 1301, 1}, {1, 70, 1300}, {1300, 70, 1}, {33, 1, 130}, {300, 200, 1}, {3, 31, 1}};
  for (DType t : {DType::f16, DType::bf16}) {
    for (const auto& [m, k, n] : sizes) {
      for (int layout = 0; layout < 4; ++layout) {
        for (int64_t pad : {0, 3}) {
          const Buffer a = operand(t, {m, k}, layout & 1, 1, pad), b = operand(t, {k, n}, layout & 2, 2, pad);
          for (DType to : {t, DType::f32}) check_gemm({.a = a, .b = b, .c = make(to, {m, n})});
        }
      }
    }
    const Buffer a = operand(t, {3, 40, 1}, false, 1), b = operand(t, {3, 1, 50}, false, 2);
    check_gemm({.a = a, .b = b, .c = make(t, {3, 40, 50})});
  }
  same_for_any_threads([] {
    const Buffer a = operand(DType::bf16, {700, 900}, false, 1), x = operand(DType::bf16, {900, 1}, false, 2),
                 z = operand(DType::bf16, {1, 700}, false, 3), y = make(DType::bf16, {700, 1}), w = make(DType::f32, {1, 900});
    cpu().gemm({.a = a, .b = x, .c = y});
    cpu().gemm({.a = z, .b = a, .c = w});
    return y.raw() + w.raw();
  });
}

TEST_CASE("batches of products of single rows and columns whose elements lie apart, with a bias and without") {
  const int64_t sizes[][3] = {{1, 300, 33}, {1, 64, 64}, {2, 300, 33}, {1, 17, 5}, {3, 64, 1}, {1, 64, 1}, {33, 300, 1}};
  for (DType t : {DType::f32, DType::f16, DType::bf16}) {
    for (const auto& size : sizes) {
      const int64_t m = size[0], k = size[1], n = size[2];
      for (int layout = 0; layout < 4; ++layout) {
        for (int64_t batch : {1, 2, 5}) {
          const Shape rows = batch == 1 ? Shape{m, k} : Shape{batch, m, k}, columns = batch == 1 ? Shape{k, n} : Shape{batch, k, n},
                      result = batch == 1 ? Shape{m, n} : Shape{batch, m, n};
          const Buffer a = operand(t, rows, layout & 1, 1, 3), b = operand(t, columns, layout & 2, 2, 5),
                       bias = uniform(DType::f32, {n}, 3);
          for (DType to : {t, DType::f32}) {
            CAPTURE(m);
            check_gemm({.a = a, .b = b, .c = make(to, result)});
            check_gemm({.a = a, .b = b, .c = make(to, result), .bias = bias});
          }
        }
      }
    }
  }
}

TEST_CASE("float16 products around the edges of their blocks") {
  // Blocks have 516 rows, 256 columns or more in strips of 96, and a depth of 256; tiles have 12, 4 or 8 rows and columns.
  const int64_t sizes[][3] = {{517, 257, 35}, {13, 513, 97}, {3, 255, 259}, {29, 256, 513}, {1, 300, 33}, {520, 2, 100}};
  for (const auto& [m, k, n] : sizes) {
    for (int layout = 0; layout < 4; ++layout) {
      const Buffer a = operand(DType::f16, {m, k}, layout & 1, 1, 3), b = operand(DType::f16, {k, n}, layout & 2, 2, 5),
                   bias = uniform(DType::f32, {n}, 3);
      check_gemm({.a = a, .b = b, .c = make(DType::f16, {m, n}), .bias = bias, .activation = Activation::relu});
      check_gemm({.a = a, .b = b, .c = uniform(DType::f32, {m, n}, 4), .bias = bias, .accumulate = true});
    }
  }
  const Buffer a = operand(DType::f16, {2, 14, 300}, false, 1), b = operand(DType::f16, {2, 300, 130}, true, 2);
  check_gemm({.a = a, .b = b, .c = make(DType::f16, {2, 14, 130})});
  same_for_any_threads([] {
    const Buffer x = operand(DType::f16, {530, 600}, false, 1), w = operand(DType::f16, {600, 700}, true, 2),
                 y = make(DType::f16, {530, 700});
    cpu().gemm({.a = x, .b = w, .c = y});
    return y.raw();
  });
}

TEST_CASE("gemm with bias, relu and accumulation") {
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    for (int64_t m : {4, 40}) {
      const Buffer a = operand(t, {m, 24}, false, 1), b = operand(t, {24, 36}, true, 2);
      for (DType bias_type : {t, DType::f32}) {
        const Buffer bias = uniform(bias_type, {36}, 3), spread = uniform(bias_type, {36}, 3, -2, 2, Layout::sliced),
                     c = make(t, {m, 36});
        check_gemm({.a = a, .b = b, .c = c, .bias = bias});
        check_gemm({.a = a, .b = b, .c = c, .bias = spread, .activation = Activation::relu});
      }
      const DType sum_type = t == DType::f64 ? t : DType::f32;
      const Buffer c = uniform(sum_type, {m, 36}, 4), bias = uniform(sum_type, {36}, 3);
      check_gemm({.a = a, .b = b, .c = c, .accumulate = true});
      check_gemm({.a = a, .b = b, .c = c, .bias = bias, .accumulate = true});
    }
  }
}

TEST_CASE("batched gemm, with shared operands") {
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i64}) {
    for (int layout = 0; layout < 4; ++layout) {
      const Buffer a = operand(t, {3, 12, 20}, layout & 1, 1), b = operand(t, {3, 20, 18}, layout & 2, 2), c = make(t, {3, 12, 18});
      check_gemm({.a = a, .b = b, .c = c});
      Buffer shared_a = a, shared_b = b;
      shared_a.view.strides[0] = 0;
      shared_b.view.strides[0] = 0;
      check_gemm({.a = a, .b = shared_b, .c = c});
      check_gemm({.a = shared_a, .b = b, .c = c});
      const Buffer bias = uniform(t, {18}, 5);
      check_gemm({.a = a, .b = shared_b, .c = c, .bias = bias, .activation = Activation::relu});
      check_gemm({.a = a, .b = b, .c = c, .bias = bias});
    }
  }
  const Buffer a = operand(DType::f32, {1, 12, 20}, false, 1), b = operand(DType::f32, {1, 20, 18}, false, 2),
               c = make(DType::f32, {1, 12, 18});
  check_gemm({.a = a, .b = b, .c = c});
}

TEST_CASE("fused bias and relu equal the separate steps") {
  const Buffer a = operand(DType::f32, {64, 50}, false, 1), b = operand(DType::f32, {50, 48}, true, 2),
               bias = uniform(DType::f32, {48}, 3);
  const Buffer fused = make(DType::f32, {64, 48}), plain = make(DType::f32, {64, 48}), sum = make(DType::f32, {64, 48});
  cpu().gemm({.a = a, .b = b, .c = fused, .bias = bias, .activation = Activation::relu});
  cpu().gemm({.a = a, .b = b, .c = plain});
  TensorView rows = bias;
  rows.shape = {64, 48};
  rows.strides = {0, 1};
  cpu().binary(Binary::add, plain, rows, sum);
  cpu().unary(Unary::relu, sum, plain);
  for (int64_t i = 0; i < fused.numel(); ++i) CHECK(fused[i] == doctest::Approx(plain[i]).epsilon(1e-6));
}

TEST_CASE("gelu, derivatives and the sums for biases equal the separate steps, bit for bit") {
  const int64_t m = 37, k = 50, n = 48;
  for (DType t : kFloating) {
    CAPTURE(name(t));
    const Buffer a = operand(t, {m, k}, true, 1), b = operand(t, {k, n}, true, 2), bias = uniform(t, {n}, 3);
    CHECK(cpu().activation_aux(Activation::relu, m, n, t).shape.empty());
    const AuxLayout layout = cpu().activation_aux(Activation::gelu, m, n, t);
    CHECK(layout.shape == Shape{m, n});
    CHECK(layout.dtype == t);
    const Buffer plain = make(t, {m, n}), z = make(t, {m, n}), fused = make(t, {m, n}), aux = make(t, {m, n}),
                 want = make(t, {m, n});
    cpu().gemm({.a = a, .b = b, .c = z, .bias = bias});
    cpu().unary(Unary::gelu_tanh, z, want);
    cpu().gemm({.a = a, .b = b, .c = fused, .bias = bias, .activation = Activation::gelu, .aux = aux});
    CHECK(fused.raw() == want.raw());
    CHECK(aux.raw() == z.raw());
    cpu().gemm({.a = a, .b = b, .c = fused, .bias = bias, .activation = Activation::gelu});
    CHECK(fused.raw() == want.raw());

    for (DType sum_type : {t, t == DType::f64 ? DType::f64 : DType::f32}) {
      const Buffer columns = make(sum_type, {1, n}), rows = make(sum_type, {1, m}), column_sum = make(sum_type, {n}),
                   a_row_sum = make(sum_type, {m});
      cpu().gemm({.a = a, .b = b, .c = plain});
      TensorView swapped = a;
      std::swap(swapped.shape[0], swapped.shape[1]);
      std::swap(swapped.strides[0], swapped.strides[1]);
      cpu().reduce(Reduce::sum, swapped, rows);
      for (Activation act : {Activation::relu, Activation::gelu}) {
        cpu().unary_backward(act == Activation::relu ? Unary::relu : Unary::gelu_tanh, plain, z, want);
        cpu().reduce(Reduce::sum, want, columns);
        cpu().gemm({.a = a,
                    .b = b,
                    .c = fused,
                    .activation = act,
                    .aux = z,
                    .derivative = true,
                    .column_sum = column_sum,
                    .a_row_sum = a_row_sum});
        CHECK(fused.raw() == want.raw());
        CHECK(column_sum.values() == columns.values());
        CHECK(a_row_sum.values() == rows.values());
      }
    }
  }
  const Buffer a = uniform(DType::f32, {3, 5}, 1), b = uniform(DType::f32, {5, 2}, 2), c = make(DType::f32, {3, 2}),
               want = make(DType::f32, {1, 2}), sums = make(DType::f32, {2});
  cpu().reduce(Reduce::sum, b, want);
  cpu().gemm({.a = a, .b = b, .c = c, .b_column_sum = sums});
  CHECK(sums.values() == want.values());
  const Buffer columns = make(DType::f32, {2}), rows = make(DType::f32, {3});
  cpu().gemm({.a = make(DType::f32, {0, 4}), .b = make(DType::f32, {4, 2}), .c = make(DType::f32, {0, 2}), .column_sum = columns});
  cpu().gemm({.a = make(DType::f32, {3, 0}), .b = make(DType::f32, {0, 2}), .c = make(DType::f32, {3, 2}), .a_row_sum = rows});
  CHECK(columns.values() == std::vector<double>(2, 0));
  CHECK(rows.values() == std::vector<double>(3, 0));
}

TEST_CASE("empty gemms: no terms give zero or the bias, no outputs give nothing") {
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    const Buffer a = make(t, {3, 0}), b = make(t, {0, 2}), c = make(t, {3, 2}), bias = make(t, {2}, {-1, 2});
    cpu().gemm({.a = a, .b = b, .c = c});
    CHECK(c.values() == std::vector<double>(6, 0));
    cpu().gemm({.a = a, .b = b, .c = c, .bias = bias});
    CHECK(c.values() == std::vector<double>{-1, 2, -1, 2, -1, 2});
    cpu().gemm({.a = a, .b = b, .c = c, .bias = bias, .activation = Activation::relu});
    CHECK(c.values() == std::vector<double>{0, 2, 0, 2, 0, 2});
    cpu().gemm({.a = make(t, {0, 4}), .b = make(t, {4, 2}), .c = make(t, {0, 2})});
    cpu().gemm({.a = make(t, {3, 4}), .b = make(t, {4, 0}), .c = make(t, {3, 0})});
  }
  const Buffer c = make(DType::f32, {1, 2}, {1, 2}), bias = make(DType::f32, {2}, {10, 20});
  cpu().gemm({.a = make(DType::f32, {1, 0}), .b = make(DType::f32, {0, 2}), .c = c, .bias = bias, .accumulate = true});
  CHECK(c.values() == std::vector<double>{11, 22});
}

TEST_CASE("f16 products accumulate in float, round once and overflow to inf") {
  const double inf = std::numeric_limits<double>::infinity();
  for (int64_t m : {2, 32}) {
    Buffer a = make(DType::f16, {m, 64}), b = make(DType::f16, {64, 16});
    const Buffer c = make(DType::f16, {m, 16}), wide = make(DType::f32, {m, 16});
    cpu().fill(a, 100);
    cpu().fill(b, 100);
    cpu().gemm({.a = a, .b = b, .c = c});
    cpu().gemm({.a = a, .b = b, .c = wide});
    CHECK(c[0] == inf);
    CHECK(wide[0] == 640000);
    // Partial sums above 65504 that come back below it.
    for (int64_t i = 0; i < 64; ++i) {
      for (int64_t j = 0; j < 16; ++j) set(b.view, i * 16 + j, i < 32 ? 100 : -100 + (i == 40 ? 1 : 0));
    }
    cpu().gemm({.a = a, .b = b, .c = c});
    CHECK(c[5] == 100);
  }
}

TEST_CASE("inf and NaN go through products, and old contents do not") {
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    for (int64_t m : {1, 20}) {
      Buffer a = uniform(t, {m, 16}, 1), b = uniform(t, {16, 16}, 2);
      const Buffer c = make(t, {m, 16});
      cpu().fill(c, std::nan(""));
      cpu().gemm({.a = a, .b = b, .c = c});
      for (double v : c.values()) CHECK(std::isfinite(v));
      set(a.view, 3, std::nan(""));
      cpu().gemm({.a = a, .b = b, .c = c});
      CHECK(std::isnan(c[2]));
      set(a.view, 3, std::numeric_limits<double>::infinity());
      cpu().gemm({.a = a, .b = b, .c = c});
      CHECK(std::isinf(c[2]));
    }
  }
}

TEST_CASE("the same product gives the same bits every time") {
  for (DType t : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Buffer a = operand(t, {300, 1100}, false, 1), b = operand(t, {1100, 520}, true, 2);
    const auto run = [&] {
      const Buffer c = make(t, {300, 520});
      cpu().gemm({.a = a, .b = b, .c = c});
      return c.raw();
    };
    CAPTURE(name(t));
    CHECK(run() == run());
  }
}

TEST_CASE("many shapes: the cache of primitives stays bounded and right") {
  set_num_threads(1);
  for (int64_t n = 9; n < 1200; ++n) {
    const Buffer a = operand(DType::f32, {9, 2}, false, 1), b = operand(DType::f32, {2, n}, false, 2), c = make(DType::f32, {9, n});
    cpu().gemm({.a = a, .b = b, .c = c});
    CHECK(c[n - 1] == doctest::Approx(a[0] * b[n - 1] + a[1] * b[2 * n - 1]));
  }
  set_num_threads(0);
}
