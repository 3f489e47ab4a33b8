// SPDX-License-Identifier: Apache-2.0
// Reductions and softmax against the CPU backend.
#include <algorithm>
#include <limits>

#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

void check_reduce_of(Reduce op, const Buffer& x, const Shape& out_shape, int64_t shift, bool to_f32 = false) {
  const DType t = x.view.dtype;
  const Shape& shape = x.view.shape;
  const DType to = op == Reduce::any || op == Reduce::all              ? DType::boolean
                   : to_f32 || (op == Reduce::mean && !is_floating(t)) ? DType::f32
                                                                       : t;
  const Buffer y = poisoned(to, out_shape), want = make(to, out_shape);
  cpu().reduce(op, x, want);
  const OnDevice dev_x(x, shift), dev_y(y, shift);
  cuda::reduce(queue(), op, dev_x, dev_y);
  dev_y.fetch();
  const double n = double(numel(shape)) / double(std::max<int64_t>(numel(out_shape), 1));
  const bool adds = op == Reduce::sum || op == Reduce::mean;
  check_close(y, want, 2, adds && t != DType::f64 ? 4e-7 * n / (op == Reduce::mean ? n : 1) : 1e-12 * n,
              "reduce " + std::to_string(int(op)));
}

void check_reduce(Reduce op, DType t, const Shape& shape, const Shape& out_shape, Layout layout = Layout::dense,
                  int64_t shift = 0) {
  check_reduce_of(op, uniform(t, shape, 7, -2, 3, layout), out_shape, shift);
}

}  // namespace

TEST_CASE("reductions over rows, columns and everything") {
  for (Reduce op : {Reduce::sum, Reduce::mean, Reduce::max, Reduce::min, Reduce::any, Reduce::all}) {
    for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64}) {
      for (const Shape& shape : {Shape{3, 31}, Shape{9, 33}, Shape{40, 257}, Shape{2, 1025}}) {
        check_reduce(op, t, shape, {shape[0], 1});
        check_reduce(op, t, shape, {1, shape[1]});
        check_reduce(op, t, shape, {1, 1}, Layout::dense, 1);
      }
      check_reduce(op, t, {4, 9, 33}, {4, 1, 33}, Layout::transposed);
      check_reduce(op, t, {4, 9, 33}, {1, 9, 1}, Layout::sliced);
      check_reduce(op, t, {0, 5}, {1, 5});
      check_reduce(op, t, {}, {});
    }
  }
  check_reduce(Reduce::prod, DType::f32, {3, 12}, {3, 1});
}

TEST_CASE("dense rows and columns of floats are read in packs, the rest one by one") {
  for (DType t : kStored) {
    for (Reduce op : {Reduce::sum, Reduce::mean, Reduce::max, Reduce::min}) {
      for (int64_t shift : {0, 1, 8}) {
        // Short and long rows, whole packs and not; a segment's end inside a row.
        for (int64_t n : {64, 60, 1024, 1032, 8200}) {
          check_reduce_of(op, pitched(t, 3, n, (n + 7) / 8 * 8, 5), {3, 1}, shift);
          check_reduce_of(op, uniform(t, {1, n + 1}, 5), {1, 1}, shift);
        }
        // Fewer and more columns than a block takes; fewer and more rows.
        for (int64_t rows : {2, 33, 129, 300}) {
          for (int64_t columns : {8, 24, 64, 136})
            check_reduce_of(op, pitched(t, rows, columns, columns + 8, 6), {1, columns}, shift);
        }
      }
    }
    check_reduce_of(Reduce::sum, uniform(t, {300, 64}, 8), {1, 64}, 0, true);
    check_reduce_of(Reduce::sum, uniform(t, {64, 1000}, 8), {64, 1}, 0, true);
    check_reduce(Reduce::sum, t, {3, 40, 16}, {3, 1, 16});  // columns of a batch
    check_reduce(Reduce::sum, t, {3, 4, 16}, {1, 4, 1});
  }
}

TEST_CASE("sums add every element once") {
  // Whole numbers: the sums are exact.
  const Buffer x = make(DType::f32, {256, 64}), y = poisoned(DType::f32, {1, 64}), z = poisoned(DType::f32, {256, 1});
  for (int64_t i = 0; i < x.numel(); ++i) set(x.view, i, double(i));
  const OnDevice dev_x(x), dev_y(y), dev_z(z);
  cuda::reduce(queue(), Reduce::sum, dev_x, dev_y);
  cuda::reduce(queue(), Reduce::sum, dev_x, dev_z);
  dev_y.fetch();
  dev_z.fetch();
  for (int64_t c = 0; c < 64; ++c) CHECK(y[c] == 256 * c + 64 * 255 * 128);
  for (int64_t r = 0; r < 256; ++r) CHECK(z[r] == 64 * 64 * r + 63 * 32);
}

TEST_CASE("long reductions take several segments") {
  check_reduce_of(Reduce::sum, uniform(DType::f16, {70 * 8192 + 3}, 7), {1}, 0, true);  // more than one thread joins
  check_reduce(Reduce::max, DType::i32, {70 * 8192 + 3}, {1});
  for (int64_t n : {8191, 8192, 8193, 40000}) {
    for (DType t : kStored) {
      check_reduce(Reduce::sum, t, {n}, {1});
      check_reduce(Reduce::max, t, {n}, {1});
    }
  }
  check_reduce(Reduce::mean, DType::f32, {1500, 40}, {1, 40});
  for (DType t : {DType::f32, DType::i64}) check_reduce(Reduce::sum, t, {1030, 301}, {1, 301});  // more outputs than threads
  check_reduce(Reduce::sum, DType::f32, {3, 20000}, {3, 1});
}

TEST_CASE("reductions of every kind take every kernel there is for their type") {
  const auto values = [](Reduce op, DType t, const Shape& shape, Layout layout = Layout::dense) {
    if (op == Reduce::prod) return uniform(t, shape, 3, t == DType::i64 ? -1 : 0.999, t == DType::i64 ? 2 : 1.001, layout);
    return uniform(t, shape, 3, -2, 3, layout);
  };
  for (Reduce op :
       {Reduce::sum, Reduce::prod, Reduce::max, Reduce::min, Reduce::any, Reduce::all, Reduce::sum_abs, Reduce::sum_squares}) {
    for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i64}) {
      for (int64_t columns : {40, 9000}) {  // a warp or a block a row, of one segment or two
        check_reduce_of(op, values(op, t, {3, columns}), {3, 1}, 0);
        check_reduce_of(op, values(op, t, {3, columns}, Layout::sliced), {3, 1}, 0);
      }
      check_reduce_of(op, values(op, t, {600, 40}), {1, 40}, 0);  // columns
    }
    for (DType t : {DType::f64, DType::i64})
      check_reduce_of(op, values(op, t, {1, 64 * 8192 + 1}), {1, 1}, 0);  // joined by a block
  }
}

TEST_CASE("NaN wins in max and min") {
  for (Reduce op : {Reduce::max, Reduce::min}) {
    for (int64_t at : {0, 40, 99}) {
      const Buffer x = uniform(DType::f32, {100}, 1), y = poisoned(DType::f32, {1});
      set(x.view, at, std::nan(""));
      set(y.view, 0, 0);
      const OnDevice dev_x(x), dev_y(y);
      cuda::reduce(queue(), op, dev_x, dev_y);
      dev_y.fetch();
      CHECK(std::isnan(y[0]));
    }
  }
}

namespace {

void check_softmax(const Buffer& x, int dim, bool log, int64_t shift) {
  const DType t = x.view.dtype;
  const Shape& shape = x.view.shape;
  const Buffer g = uniform(t, shape, 4), y = poisoned(t, shape), dx = poisoned(t, shape);
  const Buffer want = make(t, shape), want_dx = make(t, shape);
  cpu().softmax(x, want, dim, log);
  cpu().softmax_backward(g, want, want_dx, dim, log);
  const OnDevice dev_x(x, shift), dev_y(y), dev_g(g, shift), dev_saved(want), dev_dx(dx);
  cuda::softmax(queue(), dev_x, dev_y, dim, log);
  cuda::softmax_backward(queue(), dev_g, dev_saved, dev_dx, dim, log);
  dev_y.fetch();
  dev_dx.fetch();
  check_close(y, want, 4, 2e-6, "softmax");
  check_close(dx, want_dx, 4, 2e-5, "softmax backward");
}

}  // namespace

TEST_CASE("softmax and log-softmax, forward and backward") {
  for (DType t : kFloating) {
    for (bool log : {false, true}) {
      for (int64_t shift : {0, 1}) {
        for (int64_t n : {1, 31, 32, 33, 257, 1000, 1024, 1025, 2056}) {
          check_softmax(uniform(t, {11, n}, 3, -5, 5), 1, log, shift);
          check_softmax(uniform(t, {1, n}, 3, -5, 5), 1, log, shift);
        }
        check_softmax(pitched(t, 9, 64, 72, 3, -5, 5), 1, log, shift);
        check_softmax(uniform(t, {33, 3}, 3, -5, 5), 0, log, shift);
        check_softmax(uniform(t, {3, 5, 40}, 3, -5, 5), 2, log, shift);
      }
    }
  }
}

TEST_CASE("softmax between dtypes, as attention has it, and of rows longer than registers hold") {
  for (DType from : kStored) {
    for (DType to : kStored) {
      for (const Shape& shape : {Shape{2, 3, 64}, Shape{3, 1032}, Shape{2, 8192}, Shape{1, 8200}, Shape{2, 20003}}) {
        for (bool log : {false, true}) {
          for (int64_t shift : {0, 1}) {
            const int dim = shape.size() - 1;
            const Buffer x = uniform(from, shape, 3, -5, 5), g = uniform(from, shape, 4), y = poisoned(to, shape),
                         want = make(to, shape), dx = poisoned(from, shape), want_dx = make(from, shape);
            cpu().softmax(x, want, dim, log);
            cpu().softmax_backward(g, want, want_dx, dim, log);
            const OnDevice dev_x(x, shift), dev_y(y, shift), dev_g(g, shift), dev_saved(want, shift), dev_dx(dx);
            cuda::softmax(queue(), dev_x, dev_y, dim, log);
            cuda::softmax_backward(queue(), dev_g, dev_saved, dev_dx, dim, log);
            dev_y.fetch();
            dev_dx.fetch();
            check_close(y, want, 4, 2e-6, "softmax");
            // The sum of so many products is taken in another order; log-softmax's is multiplied by up to 1.
            check_close(dx, want_dx, 4, 2e-5 + 2e-9 * double(shape.back()), "softmax backward");
          }
        }
      }
    }
  }
}

TEST_CASE("softmax of masked, infinite and NaN rows is the CPU's") {
  const double inf = std::numeric_limits<double>::infinity();
  for (DType t : kStored) {
    for (int64_t n : {64, 2048}) {
      for (bool log : {false, true}) {
        const Buffer x = uniform(t, {6, n}, 3, -5, 5), y = poisoned(t, {6, n}), want = make(t, {6, n});
        for (int64_t i = 0; i < n; ++i) {
          if (i < n - 1) set(x.view, i, -inf);  // all but the last masked
          set(x.view, n + i, -inf);             // all masked
          if (i % 3) set(x.view, 2 * n + i, -inf);
        }
        set(x.view, 3 * n + n / 2, inf);
        set(x.view, 4 * n + n - 1, std::nan(""));
        for (int64_t i = 0; i < n; ++i) set(x.view, 5 * n + i, double(i % 50) * 1000 - 20000);  // large steps up and down
        cpu().softmax(x, want, 1, log);
        const OnDevice dev_x(x), dev_y(y);
        cuda::softmax(queue(), dev_x, dev_y, 1, log);
        dev_y.fetch();
        check_close(y, want, 4, 2e-6, "softmax");
      }
    }
  }
}
