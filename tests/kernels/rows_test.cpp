// Reductions and softmax against the CPU backend.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

void check_reduce(Reduce op, DType t, const Shape& shape, const Shape& out_shape, Layout layout = Layout::dense,
                  int64_t shift = 0) {
  const DType to = op == Reduce::any || op == Reduce::all ? DType::boolean : op == Reduce::mean && !is_floating(t) ? DType::f32 : t;
  const Buffer x = uniform(t, shape, 7, -2, 3, layout), y = poisoned(to, out_shape), want = make(to, out_shape);
  cpu().reduce(op, x, want);
  const OnDevice dev_x(x, shift), dev_y(y, shift);
  cuda::reduce(queue(), op, dev_x, dev_y);
  dev_y.fetch();
  const double n = double(numel(shape)) / double(std::max<int64_t>(numel(out_shape), 1));
  const bool adds = op == Reduce::sum || op == Reduce::mean;
  check_close(y, want, 2, adds && t != DType::f64 ? 4e-7 * n / (op == Reduce::mean ? n : 1) : 1e-12 * n,
              "reduce " + std::to_string(int(op)));
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

TEST_CASE("long reductions take several segments") {
  for (int64_t n : {8191, 8192, 8193, 40000}) {
    for (DType t : kStored) {
      check_reduce(Reduce::sum, t, {n}, {1});
      check_reduce(Reduce::max, t, {n}, {1});
    }
  }
  check_reduce(Reduce::mean, DType::f32, {1500, 40}, {1, 40});
  check_reduce(Reduce::sum, DType::f32, {3, 20000}, {3, 1});
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

TEST_CASE("softmax and log-softmax, forward and backward") {
  for (DType t : kFloating) {
    for (int64_t n : {1, 31, 32, 33, 257, 1024, 1025}) {
      for (bool log : {false, true}) {
        for (int dim : {1, 0}) {
          const Shape shape = dim == 1 ? Shape{11, n} : Shape{n, 3};
          const Buffer x = uniform(t, shape, 3, -5, 5), g = uniform(t, shape, 4), y = poisoned(t, shape), dx = poisoned(t, shape);
          const Buffer want = make(t, shape), want_dx = make(t, shape);
          cpu().softmax(x, want, dim, log);
          cpu().softmax_backward(g, want, want_dx, dim, log);
          const OnDevice dev_x(x, 1), dev_y(y), dev_g(g), dev_saved(want), dev_dx(dx);
          cuda::softmax(queue(), dev_x, dev_y, dim, log);
          cuda::softmax_backward(queue(), dev_g, dev_saved, dev_dx, dim, log);
          dev_y.fetch();
          dev_dx.fetch();
          check_close(y, want, 4, 2e-6, "softmax");
          check_close(dx, want_dx, 4, 2e-5, "softmax backward");
        }
      }
    }
  }
}
