// SPDX-License-Identifier: Apache-2.0
// Every row of elementwise.def against its own formula in double.
#include <limits>

#include "framework/math/pointwise.h"
#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

#define HS_UNARY(name, ...) [](double x) { return functor::name{}(x); },
double (*const unary_rows[])(double) = {
#include "framework/math/elementwise.def"
};
#define HS_UNARY(name, ...) [](double g, double s) { return functor::name##_backward{}(g, s); },
double (*const unary_backward_rows[])(double, double) = {
#include "framework/math/elementwise.def"
};
#define HS_BINARY(name, ...) [](double a, double b) { return functor::name{}(a, b); },
double (*const binary_rows[])(double, double) = {
#include "framework/math/elementwise.def"
};
#define HS_BINARY(name, ...)                                                           \
  {[](double g, double a, double b) { return functor::name##_backward_a{}(g, a, b); }, \
   [](double g, double a, double b) { return functor::name##_backward_b{}(g, a, b); }},
double (*const binary_backward_rows[][2])(double, double, double) = {
#include "framework/math/elementwise.def"
};
#define HS_TEST(name, ...) [](double a, double b) { return functor::name{}(a, b); },
bool (*const test_rows[])(double, double) = {
#include "framework/math/elementwise.def"
};

// Absolute slack for results that cancel: a few float roundings of numbers of size 1.
double slack(DType in) { return in == DType::f64 ? 1e-14 : 2e-6; }

const Shape kShapes[] = {Shape{}, Shape{0, 3}, Shape{7, 5}, Shape{3, 4, 129}};

}  // namespace

TEST_CASE("unary rows, forward and backward, over dtypes and layouts") {
  for (int op = 0; op < kUnaryCount; ++op) {
    const ElementwiseRow& row = kUnaryRows[op];
    for (DType t : kFloating) {
      for (Layout layout : kLayouts) {
        for (const Shape& shape : kShapes) {
          const Buffer x = uniform(t, shape, 11, row.lo, row.hi, layout), g = uniform(t, shape, 12), y = make(t, shape),
                       dx = make(t, shape);
          cpu().unary(Unary(op), x, y);
          const Buffer& saved = row.saves == OpSaves::y ? y : x;
          cpu().unary_backward(Unary(op), g, saved, dx);
          bool forward = true, backward = true;
          for (int64_t i = 0; i < x.numel(); ++i) {
            forward = forward && close(t, y[i], unary_rows[op](x[i]), 4, slack(t));
            backward = backward && close(t, dx[i], unary_backward_rows[op](g[i], saved[i]), 8, 4 * slack(t));
          }
          CHECK_MESSAGE(forward, row.name, " ", name(t));
          CHECK_MESSAGE(backward, row.name, " backward ", name(t));
        }
      }
    }
  }
}

TEST_CASE("rows of kind any keep integers, rows of kind real take them to float") {
  for (int op = 0; op < kUnaryCount; ++op) {
    const ElementwiseRow& row = kUnaryRows[op];
    for (DType t : {DType::i8, DType::i32, DType::i64, DType::u8}) {
      const bool real = row.kind == OpKind::real;
      const DType to = real ? DType::f32 : t;
      const Buffer x = make(t, {4}, {1, 0, 1, 1}), y = make(to, {4});
      cpu().unary(Unary(op), x, y);
      for (int64_t i = 0; i < 4; ++i) {
        const double want = unary_rows[op](x[i]);
        CHECK_MESSAGE(close(to, y[i], t == DType::u8 && want == -1 ? 255 : want, 4, 1e-6), row.name, " ", name(t));
      }
    }
  }
  Buffer big = make(DType::i64, {2}), sum = make(DType::i64, {2});
  big.view.as<int64_t>()[0] = (int64_t(1) << 60) + 1;
  big.view.as<int64_t>()[1] = -3;
  cpu().binary(Binary::add, big, big, sum);
  CHECK(sum.view.as<int64_t>()[0] == (int64_t(1) << 61) + 2);
  CHECK(sum.view.as<int64_t>()[1] == -6);
}

TEST_CASE("binary rows, forward and backward, over dtypes, layouts and mixtures") {
  for (int op = 0; op < kBinaryCount; ++op) {
    const ElementwiseRow& row = kBinaryRows[op];
    for (DType ta : kFloating) {
      for (DType tb : kFloating) {
        for (Layout layout : kLayouts) {
          const Shape shape{3, 4, 129};
          const DType to = promote(ta, tb);
          const Buffer a = uniform(ta, shape, 21, row.lo, row.hi), b = uniform(tb, shape, 22, row.lo, row.hi, layout);
          const Buffer g = uniform(to, shape, 23), y = make(to, shape), da = make(ta, shape), db = make(tb, shape);
          cpu().binary(Binary(op), a, b, y);
          cpu().binary_backward(Binary(op), 0, g, a, b, da);
          cpu().binary_backward(Binary(op), 1, g, a, b, db);
          bool ok = true, ok_a = true, ok_b = true;
          for (int64_t i = 0; i < a.numel(); ++i) {
            ok = ok && close(to, y[i], binary_rows[op](a[i], b[i]), 4, slack(to));
            ok_a = ok_a && close(ta, da[i], binary_backward_rows[op][0](g[i], a[i], b[i]), 8, 16 * slack(to));
            ok_b = ok_b && close(tb, db[i], binary_backward_rows[op][1](g[i], a[i], b[i]), 8, 16 * slack(to));
          }
          CHECK_MESSAGE(ok, row.name, " ", name(ta), " ", name(tb));
          CHECK_MESSAGE(ok_a, row.name, " da ", name(ta), " ", name(tb));
          CHECK_MESSAGE(ok_b, row.name, " db ", name(ta), " ", name(tb));
        }
      }
    }
  }
}

TEST_CASE("broadcasting is a stride of 0") {
  const Shape shape{64, 300};
  for (DType t : kFloating) {
    const Buffer a = uniform(t, shape, 1), bias = uniform(t, {300}, 2), column = uniform(t, {64, 1}, 3), one = uniform(t, {}, 4);
    const Buffer* others[] = {&bias, &column, &one};
    for (const Buffer* other : others) {
      TensorView b = other->view;
      b.strides = broadcast_strides(b.shape, b.strides, shape);
      b.shape = shape;
      const Buffer y = make(t, shape), z = make(t, shape);
      cpu().binary(Binary::sub, a, b, y);
      cpu().binary(Binary::sub, b, a, z);
      bool ok = true;
      for (int64_t i = 0; i < y.numel(); ++i) ok = ok && close(t, y[i], a[i] - get(b, i)) && z[i] == -y[i];
      CHECK(ok);
    }
  }
}

TEST_CASE("comparisons and logic give bool") {
  for (int op = 0; op < kComparisonCount; ++op) {
    for (DType ta : kAll) {
      for (DType tb : {DType::f32, DType::i64, DType::boolean}) {
        const Buffer a = make(ta, {2, 3}, {0, 1, 2, 0, 1, 2}), b = make(tb, {2, 3}, {0, 0, 0, 1, 1, 1}),
                     y = make(DType::boolean, {2, 3});
        cpu().test(Comparison(op), a, b, y);
        for (int64_t i = 0; i < 6; ++i) CHECK((y[i] != 0) == test_rows[op](a[i], b[i]));
      }
    }
  }
  const Buffer nan = make(DType::f16, {1}, {std::nan("")}), y = make(DType::boolean, {1});
  cpu().test(Comparison::eq, nan, nan, y);
  CHECK(y[0] == 0);
  cpu().test(Comparison::ne, nan, nan, y);
  CHECK(y[0] == 1);
}

TEST_CASE("where chooses, and keeps NaN out of the other branch") {
  for (DType t : kAll) {
    const Buffer cond = make(DType::boolean, {4}, {1, 0, 1, 0});
    const Buffer a = make(t, {4}, {1, 1, 0, 1}), b = make(t, {4}, {0, 1, 1, 0}), y = make(t, {4});
    cpu().where(cond, a, b, y);
    CHECK(y.values() == std::vector<double>{1, 1, 0, 0});
  }
  const Buffer cond = make(DType::boolean, {1}, {1}), a = make(DType::f32, {1}, {2}), b = make(DType::f32, {1}, {std::nan("")});
  const Buffer y = make(DType::f32, {1});
  cpu().where(cond, a, b, y);
  CHECK(y[0] == 2);
}

TEST_CASE("NaN and inf go through") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (DType t : kFloating) {
    const Buffer x = make(t, {3}, {nan, inf, -inf}), y = make(t, {3});
    for (Unary op : {Unary::relu, Unary::abs, Unary::exp, Unary::tanh, Unary::sigmoid, Unary::gelu, Unary::relu6}) {
      cpu().unary(op, x, y);
      CHECK(std::isnan(y[0]));
    }
    cpu().unary(Unary::exp, x, y);
    CHECK(y[1] == inf);
    CHECK(y[2] == 0);
    cpu().unary(Unary::relu, x, y);
    CHECK(y[1] == inf);
    CHECK(y[2] == 0);
    const Buffer one = make(t, {3}, {1, 1, 1});
    for (Binary op : {Binary::maximum, Binary::minimum}) {
      cpu().binary(op, x, one, y);
      CHECK(std::isnan(y[0]));
      cpu().binary(op, one, x, y);
      CHECK(std::isnan(y[0]));
    }
  }
  const Buffer big = make(DType::f16, {1}, {60000}), y = make(DType::f16, {1});
  cpu().binary(Binary::add, big, big, y);
  CHECK(y[0] == inf);
}

TEST_CASE("gelu keeps its digits far below zero") {
  const Buffer x = uniform(DType::f32, {4096}, 3, -12, -2), y = make(DType::f32, {4096});
  cpu().unary(Unary::gelu, x, y);
  bool ok = true;
  for (int64_t i = 0; i < x.numel(); ++i) ok = ok && close(DType::f32, y[i], x[i] * 0.5 * std::erfc(x[i] * -std::sqrt(0.5)), 20);
  CHECK(ok);
}

TEST_CASE("a number, which comes as a double, counts in the dtype of the result") {
  const Buffer a = uniform(DType::f32, {700}, 1, 0.5, 2), g = uniform(DType::f32, {700}, 2), y = make(DType::f32, {700}),
               da = make(DType::f32, {700});
  const Buffer number = make(DType::f64, {}, {0.1});
  TensorView b = number;
  b.shape = {700};
  b.strides = {0};
  cpu().binary(Binary::mul, a, b, y);
  cpu().binary_backward(Binary::mul, 0, g, a, b, da);
  int wrong = 0;
  for (int64_t i = 0; i < 700; ++i) wrong += (y[i] != float(a[i]) * 0.1f) + (da[i] != float(g[i]) * 0.1f);
  CHECK(wrong == 0);
}

TEST_CASE("pow of a block is pow of each element, whatever is beside it") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const double specials[] = {0, -0.0, 1, -1, 2, -2.5, -3, 0.5, 1e-41, -1e-41, 3e38, inf, -inf, nan};
  const int64_t n = 1500;  // a whole block and a part of one
  const Buffer a = uniform(DType::f32, {n}, 1, 0.1, 5), b = uniform(DType::f32, {n}, 2, -5, 5), g = uniform(DType::f32, {n}, 3);
  const Buffer y = make(DType::f32, {n}), da = make(DType::f32, {n});
  const auto check = [&] {
    cpu().binary(Binary::pow, a, b, y);
    cpu().binary_backward(Binary::pow, 0, g, a, b, da);
    int wrong = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double slope = b[i] == 0 ? 0 : double(float(g[i]) * float(b[i]) * float(std::pow(a[i], double(float(b[i]) - 1.0f))));
      wrong += !close(DType::f32, y[i], std::pow(a[i], b[i]), 3) + !close(DType::f32, da[i], float(slope), 6, 1e-44);
      wrong += !std::isnan(y[i]) && std::signbit(y[i]) != std::signbit(std::pow(a[i], b[i]));
    }
    CHECK(wrong == 0);
  };
  check();
  int64_t at = 7;
  for (double base : specials) {
    for (double exponent : specials) {
      set(a.view, at, base);
      set(b.view, at, exponent);
      at = (at + 31) % n;
    }
  }
  check();
  const Buffer same = make(DType::f32, {n});
  std::memcpy(same.view.data, a.view.data, size_t(n) * 4);
  cpu().binary(Binary::pow, a, b, y);
  cpu().binary(Binary::pow, same, b, same);  // in place
  CHECK(same.raw().substr(0, size_t(n) * 4) == y.raw().substr(0, size_t(n) * 4));
}

// A kernel's results for bfloat16 compared with its rounded results for the same numbers as floats; NaN is NaN.
void check_brief(const Buffer& brief, const Buffer& single, std::string_view what) {
  bool same = true;
  for (int64_t i = 0; i < brief.numel(); ++i) {
    const uint16_t got = brief.view.as<const uint16_t>()[i], want = bf16(single.view.as<const float>()[i]).bits;
    const auto is_nan = [](uint16_t bits) { return (bits & 0x7fff) > 0x7f80; };
    same = same && (got == want || (is_nan(got) && is_nan(want)));
  }
  CHECK_MESSAGE(same, what);
}
Buffer as_floats(const Buffer& x) {
  const Buffer y = make(DType::f32, x.view.shape);
  cpu().copy(x, y);
  return y;
}

TEST_CASE("bfloat16 is computed in float and rounded once, in registers and from tables") {
  for (const int64_t repeats : {1, 5}) {  // five times all there are: enough for a table
    const Shape shape{repeats * 65536};
    const Buffer x = make(DType::bf16, shape), y = make(DType::bf16, shape), wide = make(DType::f32, shape);
    for (int64_t i = 0; i < x.numel(); ++i) x.view.as<uint16_t>()[i] = uint16_t(i);
    const Buffer floats = as_floats(x);
    for (int op = 0; op < kUnaryCount; ++op) {
      cpu().unary(Unary(op), x, y);
      cpu().unary(Unary(op), floats, wide);
      check_brief(y, wide, kUnaryRows[op].name);
    }
  }
  const Shape shape{37, 1003};
  const Buffer a = uniform(DType::bf16, shape, 1, 0.1, 3), b = uniform(DType::bf16, shape, 2, 0.1, 3),
               g = uniform(DType::bf16, shape, 3);
  const Buffer a32 = as_floats(a), b32 = as_floats(b), g32 = as_floats(g), y = make(DType::bf16, shape),
               wide = make(DType::f32, shape);
  for (int op = 0; op < kUnaryCount; ++op) {
    cpu().unary_backward(Unary(op), g, a, y);
    cpu().unary_backward(Unary(op), g32, a32, wide);
    check_brief(y, wide, kUnaryRows[op].name);
  }
  for (int op = 0; op < kBinaryCount; ++op) {
    cpu().binary(Binary(op), a, b, y);
    cpu().binary(Binary(op), a32, b32, wide);
    check_brief(y, wide, kBinaryRows[op].name);
    for (int input : {0, 1}) {
      cpu().binary_backward(Binary(op), input, g, a, b, y);
      cpu().binary_backward(Binary(op), input, g32, a32, b32, wide);
      check_brief(y, wide, kBinaryRows[op].name);
    }
  }
  for (int op = 0; op < kPointwiseCount; ++op) {
    const TensorView brief[] = {a, b, g}, single[] = {a32, b32, g32};
    const size_t arity = size_t(kPointwiseRows[op].arity);
    cpu().pointwise(Pointwise(op), std::span(brief, arity), 0.75, 1.5, y);
    cpu().pointwise(Pointwise(op), std::span(single, arity), 0.75, 1.5, wide);
    check_brief(y, wide, kPointwiseRows[op].op);
    for (int input = 0; input < int(arity); ++input) {
      cpu().pointwise_backward(Pointwise(op), input, g, std::span(brief, arity), 0.75, 1.5, y);
      cpu().pointwise_backward(Pointwise(op), input, g32, std::span(single, arity), 0.75, 1.5, wide);
      check_brief(y, wide, kPointwiseRows[op].op);
    }
  }
}

TEST_CASE("bfloat16, bool and conditions through any layout") {
  const Shape shape{6, 5, 129};
  for (Layout layout : kLayouts) {
    const Buffer a = uniform(DType::bf16, shape, 1, -2, 2, layout), b = uniform(DType::bf16, {129}, 2);
    const TensorView row{b.view.data, DType::bf16, shape, {0, 0, 1}}, column{b.view.data, DType::bf16, shape, {5, 1, 0}};
    const Buffer y = make(DType::bf16, shape), p = uniform(DType::boolean, shape, 3, 0, 2, layout),
                 q = uniform(DType::boolean, shape, 4, 0, 2), both = make(DType::boolean, shape),
                 less = make(DType::boolean, shape);
    for (const TensorView& other : {row, column}) {
      cpu().binary(Binary::add, a, other, y);
      bool right = true;
      for (int64_t i = 0; i < y.numel(); ++i) right = right && y[i] == double(float(bf16(float(a[i] + get(other, i)))));
      CHECK(right);
      const double half = 0.1;
      const TensorView number{const_cast<double*>(&half), DType::f64, shape, {0, 0, 0}, true};
      const Buffer single = make(DType::f32, shape), wide = as_floats(a);
      cpu().where(p, a, other, y);
      cpu().where(p, wide, number, single);
      cpu().test(Comparison::lt, a, other, less);
      cpu().test(Comparison::logical_and, p, q, both);
      for (int64_t i = 0; i < y.numel(); ++i) {
        right = right && y[i] == (p[i] != 0 ? a[i] : get(other, i)) && single[i] == (p[i] != 0 ? wide[i] : double(0.1f));
        right = right && (less[i] != 0) == (a[i] < get(other, i)) && both[i] == double(p[i] != 0 && q[i] != 0);
      }
      CHECK(right);
    }
  }
}

TEST_CASE("elementwise results do not depend on the number of threads") {
  const Shape shape{130, 1001};
  const Buffer x = uniform(DType::f32, shape, 5), h = uniform(DType::f16, shape, 6, -2, 2, Layout::transposed);
  same_for_any_threads([&] {
    const Buffer a = make(DType::f32, shape), b = make(DType::f16, shape);
    cpu().unary(Unary::gelu, x, a);
    cpu().binary(Binary::mul, x, h, b);
    return a.raw() + b.raw();
  });
}

TEST_CASE("bits of integers: shifts by all bits and more, and by negative numbers") {
  const auto run = [](Bitwise op, DType t, std::initializer_list<double> x, double by) {
    const Shape n{int64_t(x.size())};
    const Buffer a = make(t, n, x), y = make(t, n);
    const Buffer b = make(DType::i64, n);
    for (int64_t i = 0; i < b.numel(); ++i) set(b.view, i, by);
    cpu().bitwise(op, a, b, y);
    return y.values();
  };
  using Values = std::vector<double>;
  CHECK(run(Bitwise::bit_and, DType::i32, {-1, 12, 7}, 6) == Values{6, 4, 6});
  CHECK(run(Bitwise::bit_or, DType::u8, {255, 12, 0}, 3) == Values{255, 15, 3});
  CHECK(run(Bitwise::bit_xor, DType::i8, {-1, 12, 0}, 3) == Values{-4, 15, 3});
  CHECK(run(Bitwise::left_shift, DType::u8, {200, 1}, 1) == Values{144, 2});
  CHECK(run(Bitwise::left_shift, DType::i32, {1, -1}, 31) == Values{-2147483648.0, -2147483648.0});
  CHECK(run(Bitwise::left_shift, DType::i64, {1, -1}, 64) == Values{0, 0});
  CHECK(run(Bitwise::left_shift, DType::i64, {1, -1}, -1) == Values{0, 0});
  CHECK(run(Bitwise::right_shift, DType::i64, {-5, 5}, 1) == Values{-3, 2});
  CHECK(run(Bitwise::right_shift, DType::i16, {-5, 5}, 100) == Values{-1, 0});
  CHECK(run(Bitwise::right_shift, DType::u8, {200, 5}, -1) == Values{0, 0});
}
