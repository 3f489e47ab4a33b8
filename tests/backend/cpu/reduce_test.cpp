// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Reduce kOps[] = {Reduce::sum, Reduce::mean, Reduce::prod, Reduce::max, Reduce::min, Reduce::any, Reduce::all};

Shape reduced_shape(Shape s, unsigned mask) {
  for (int d = 0; d < s.size(); ++d) {
    if (mask >> d & 1) s[d] = 1;
  }
  return s;
}

// Which output an input element belongs to.
int64_t target_of(const Shape& in, const Shape& out, int64_t i) {
  int64_t at = 0, scale = 1;
  for (int d = in.size() - 1; d >= 0; --d) {
    at += (out[d] == 1 ? 0 : i % in[d]) * scale;
    scale *= out[d];
    i /= in[d];
  }
  return at;
}

double start(Reduce op) {
  switch (op) {
    case Reduce::prod:
    case Reduce::all: return 1;
    case Reduce::max: return -kInfinity;
    case Reduce::min: return kInfinity;
    default: return 0;
  }
}
double join(Reduce op, double a, double b) {
  switch (op) {
    case Reduce::prod: return a * b;
    case Reduce::max: return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b);
    case Reduce::min: return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b);
    case Reduce::any: return a != 0 || b != 0;
    case Reduce::all: return a != 0 && b != 0;
    default: return a + b;
  }
}

std::vector<double> naive(Reduce op, const TensorView& x, const Shape& out) {
  std::vector<double> r(size_t(numel(out)), start(op));
  for (int64_t i = 0; i < x.numel(); ++i) {
    double& v = r[size_t(target_of(x.shape, out, i))];
    v = join(op, v, get(x, i));
  }
  if (op == Reduce::mean) {
    for (double& v : r) v /= double(x.numel()) / double(r.size());
  }
  return r;
}

DType result_type(Reduce op, DType t) {
  if (op == Reduce::any || op == Reduce::all) return DType::boolean;
  if (op == Reduce::mean && !is_floating(t)) return DType::f32;
  return (op == Reduce::sum || op == Reduce::prod) && !is_floating(t) ? DType::i64 : t;
}

void check_reduce(Reduce op, const Buffer& x, const Shape& shape) {
  const Buffer out = make(result_type(op, x.view.dtype), shape);
  cpu().reduce(op, x, out);
  const std::vector<double> want = naive(op, x, shape);
  bool ok = true;
  const double slack = (op == Reduce::sum || op == Reduce::mean) && x.view.dtype != DType::f64 ? 1e-5 : 1e-13;
  for (int64_t i = 0; i < out.numel(); ++i)
    ok = ok && close(out.view.dtype, out[i], want[size_t(i)], op == Reduce::prod && x.view.dtype == DType::f64 ? 400 : 2, slack);
  CHECK_MESSAGE(ok, "op ", int(op), " ", name(x.view.dtype), " rank ", shape.size());
}

}  // namespace

TEST_CASE("reductions over every set of dimensions, dtype and layout") {
  for (Reduce op : kOps) {
    for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::u8, DType::i32, DType::i64, DType::boolean}) {
      for (Layout layout : kLayouts) {
        const Shape shape{5, 3, 21};
        const Buffer x = uniform(t, shape, 3,
                                 op == Reduce::prod ? 0.8
                                 : is_floating(t)   ? -2
                                                    : 0,
                                 op == Reduce::prod ? 1.3 : 3, layout);
        for (unsigned mask = 0; mask < 8; ++mask) check_reduce(op, x, reduced_shape(shape, mask));
      }
    }
  }
}

TEST_CASE("long and wide reductions") {
  for (DType t : {DType::f32, DType::bf16, DType::i32}) {
    for (const Shape& shape : {Shape{1100, 70}, Shape{70, 1100}, Shape{3, 700, 40}}) {
      const Buffer x = uniform(t, shape, 4, -1, 5);
      for (unsigned mask = 1; mask < (1u << shape.size()); ++mask) {
        for (Reduce op : {Reduce::mean, Reduce::max, Reduce::any}) check_reduce(op, x, reduced_shape(shape, mask));
      }
    }
  }
}

TEST_CASE("a sum of 2^22 floats is as exact as its rounding") {
  const int64_t n = int64_t(1) << 22;
  const Buffer x = make(DType::f32, {n}), out = make(DType::f32, {1});
  cpu().fill(x, 0.1);
  cpu().reduce(Reduce::sum, x, out);
  CHECK(out[0] == doctest::Approx(double(0.1f) * double(n)).epsilon(1e-6));
  const Buffer tall = make(DType::f32, {n / 8, 8}), sums = make(DType::f32, {1, 8});
  cpu().fill(tall, 0.1);
  cpu().reduce(Reduce::sum, tall, sums);
  CHECK(sums[7] == doctest::Approx(double(0.1f) * double(n / 8)).epsilon(1e-6));
}

TEST_CASE("sums of bf16 as it is stored are the sums of its floats, bit for bit") {
  for (const Shape& shape : {Shape{37, 1100}, Shape{1100, 37}, Shape{5, 7}, Shape{70, 1025}}) {
    const Buffer x = uniform(DType::bf16, shape, 1), wide = make(DType::f32, shape);
    cpu().copy(x, wide);
    for (int d : {0, 1}) {
      Shape to = shape;
      to[d] = 1;
      for (Reduce op : {Reduce::sum, Reduce::mean, Reduce::sum_squares, Reduce::sum_abs}) {
        const Buffer a = make(DType::f32, to), b = make(DType::f32, to);
        cpu().reduce(op, x, a);
        cpu().reduce(op, wide, b);
        CHECK(a.values() == b.values());
      }
    }
  }
}

TEST_CASE("a product may leave float's range on the way") {
  const Shape shape{3, 200};
  const Buffer x = make(DType::f32, shape);
  for (int64_t i = 0; i < x.numel(); ++i) set(x.view, i, i % 200 < 5 ? 1e30 : i % 200 >= 195 ? 0x1p-100 : 1);
  const Buffer y = make(DType::f32, {3, 1});
  cpu().reduce(Reduce::prod, x, y);
  double want = 1;
  for (int64_t i = 0; i < 200; ++i) want *= x[i];
  for (int64_t r = 0; r < 3; ++r) CHECK(close(DType::f32, y[r], want, 2));
}

TEST_CASE("reductions of nothing, and of rank 0") {
  const Buffer x = make(DType::f32, {0, 20}), row = make(DType::f32, {1, 20}), flag = make(DType::boolean, {1, 20});
  cpu().reduce(Reduce::sum, x, row);
  CHECK(row[19] == 0);
  cpu().reduce(Reduce::prod, x, row);
  CHECK(row[19] == 1);
  cpu().reduce(Reduce::mean, x, row);
  CHECK(std::isnan(row[19]));
  cpu().reduce(Reduce::any, x, flag);
  CHECK(flag[19] == 0);
  cpu().reduce(Reduce::all, x, flag);
  CHECK(flag[19] == 1);
  cpu().reduce(Reduce::sum, x, make(DType::f32, {0, 1}));
  const Buffer one = make(DType::f32, {}, {3}), out = make(DType::f32, {});
  cpu().reduce(Reduce::mean, one, out);
  CHECK(out[0] == 3);
}

TEST_CASE("NaN wins in max and min, wherever it is") {
  for (int64_t at = 0; at < 40; ++at) {
    for (const Shape& shape : {Shape{1, 40}, Shape{40, 1}}) {
      Buffer x = uniform(DType::f32, shape, 1);
      set(x.view, at, std::nan(""));
      const Buffer out = make(DType::f32, {1, 1});
      for (Reduce op : {Reduce::max, Reduce::min}) {
        cpu().reduce(op, x, out);
        CHECK(std::isnan(out[0]));
      }
    }
    Buffer columns = uniform(DType::f32, {40, 16}, 1);
    set(columns.view, at * 16 + 5, std::nan(""));
    const Buffer out = make(DType::f32, {1, 16});
    cpu().reduce(Reduce::max, columns, out);
    for (int64_t c = 0; c < 16; ++c) CHECK(std::isnan(out[c]) == (c == 5));
  }
}

TEST_CASE("extremes of rows of any length, and of infinities") {
  for (int64_t n = 1; n < 70; ++n) {
    const Buffer x = uniform(DType::f32, {3, n}, unsigned(n)), out = make(DType::f32, {3, 1});
    for (int64_t i = 0; i < n; ++i) set(x.view, n + i, -kInfinity);
    for (Reduce op : {Reduce::max, Reduce::min}) {
      cpu().reduce(op, x, out);
      for (int64_t r : {0, 2}) {
        double want = x[r * n];
        for (int64_t i = 1; i < n; ++i) want = op == Reduce::max ? std::max(want, x[r * n + i]) : std::min(want, x[r * n + i]);
        CHECK(out[r] == want);
      }
      CHECK(out[1] == -kInfinity);
    }
  }
}

TEST_CASE("inf in sums; f16 sums round and overflow once") {
  const Buffer h = make(DType::f16, {1000}), out = make(DType::f16, {1}), wide = make(DType::f32, {1});
  cpu().fill(h, 100);
  cpu().reduce(Reduce::sum, h, out);
  cpu().reduce(Reduce::sum, h, wide);
  CHECK(out[0] == kInfinity);
  CHECK(wide[0] == 100000);
  const Buffer x = make(DType::f32, {3}, {kInfinity, -kInfinity, 1}), sum = make(DType::f32, {1});
  cpu().reduce(Reduce::sum, x, sum);
  CHECK(std::isnan(sum[0]));
}

TEST_CASE("arg_reduce: first of equals, NaN first of all") {
  const Buffer x = make(DType::f32, {2, 4}, {1, 5, 5, 0, 2, std::nan(""), 9, std::nan("")});
  const Buffer values = make(DType::f32, {2, 1}), indices = make(DType::i64, {2, 1});
  cpu().arg_reduce(true, x, 1, values, indices);
  CHECK(indices.values() == std::vector<double>{1, 1});
  CHECK(values[0] == 5);
  CHECK(std::isnan(values[1]));
  cpu().arg_reduce(false, x, 1, {}, indices);
  CHECK(indices.values() == std::vector<double>{3, 1});
  const Buffer columns = make(DType::i64, {1, 4});
  cpu().arg_reduce(true, x, 0, {}, columns);
  CHECK(columns.values() == std::vector<double>{1, 1, 1, 1});
  for (DType t : kAll) {
    for (Layout layout : kLayouts) {
      const Buffer y = uniform(t, {3, 17, 5}, 9, 0, 100, layout), at = make(DType::i64, {3, 1, 5}), top = make(t, {3, 1, 5});
      cpu().arg_reduce(true, y, 1, top, at);
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t j = 0; j < 5; ++j) {
          int64_t best = 0;
          for (int64_t k = 1; k < 17; ++k) {
            if (y[(i * 17 + k) * 5 + j] > y[(i * 17 + best) * 5 + j]) best = k;
          }
          CHECK(at[i * 5 + j] == best);
          CHECK(top[i * 5 + j] == y[(i * 17 + best) * 5 + j]);
        }
      }
    }
  }
  const Buffer one = make(DType::f32, {}, {3}), index = make(DType::i64, {});
  cpu().arg_reduce(true, one, 0, {}, index);
  CHECK(index[0] == 0);
}

TEST_CASE("reductions do not depend on the number of threads") {
  for (DType t : {DType::f32, DType::f16, DType::f64}) {
    const Buffer x = uniform(t, {1030, 515}, 8);
    for (const Shape& shape : {Shape{1, 1}, Shape{1, 515}, Shape{1030, 1}}) {
      same_for_any_threads([&] {
        const Buffer out = make(t, shape);
        cpu().reduce(Reduce::sum, x, out);
        return out.raw();
      });
    }
  }
}
