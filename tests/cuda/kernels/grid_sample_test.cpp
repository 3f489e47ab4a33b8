// SPDX-License-Identifier: Apache-2.0
// Sampling at the points of a grid against the CPU backend.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

void check_sampling(DType t, const SampleArgs& args, const Shape& in, const Shape& points, double reach) {
  Shape grid_shape{in[0]}, out{in[0], in[1]};
  for (int64_t n : points) {
    grid_shape.push_back(n);
    out.push_back(n);
  }
  grid_shape.push_back(points.size());
  const Buffer x = uniform(t, in, 1), grid = uniform(t, grid_shape, 2, -reach, reach), g = uniform(t, out, 3);
  const Buffer y = poisoned(t, out), dx = poisoned(t, in), dgrid = poisoned(t, grid_shape);
  const Buffer want = make(t, out), want_dx = make(t, in), want_dgrid = make(t, grid_shape);
  cpu().grid_sample(args, x, grid, want);
  cpu().grid_sample_backward(args, g, x, grid, want_dx, want_dgrid);
  const OnDevice dev_x(x), dev_grid(grid), dev_g(g), dev_y(y), dev_dx(dx), dev_dgrid(dgrid);
  cuda::grid_sample(queue(), args, dev_x, dev_grid, dev_y);
  cuda::grid_sample_backward(queue(), args, dev_g, dev_x, dev_grid, dev_dx, dev_dgrid);
  for (const OnDevice* d : {&dev_y, &dev_dx, &dev_dgrid}) d->fetch();
  const double some = t == DType::f64 ? 1e-12 : 2e-5;
  check_close(y, want, 2, some, "grid_sample");
  check_close(dx, want_dx, 2, some, "dx");
  check_close(dgrid, want_dgrid, 2, 10 * some, "dgrid");
}

}  // namespace

TEST_CASE("every mode and padding") {
  for (DType t : kFloating) {
    for (SampleMode mode : {SampleMode::bilinear, SampleMode::nearest, SampleMode::bicubic}) {
      for (SamplePadding padding : {SamplePadding::zeros, SamplePadding::border, SamplePadding::reflection}) {
        for (bool align : {false, true}) {
          check_sampling(t, {mode, padding, align}, {2, 3, 5, 7}, {4, 9}, 1.6);
          if (mode != SampleMode::bicubic) check_sampling(t, {mode, padding, align}, {1, 2, 3, 4, 5}, {2, 3, 4}, 1.6);
        }
      }
    }
  }
}

TEST_CASE("sizes around blocks, and points that meet in few elements") {
  for (int64_t n : {1, 31, 32, 33, 257, 700}) check_sampling(DType::f32, {}, {1, 2, 3, 3}, {1, n}, 1.2);
  check_sampling(DType::f32, {}, {1, 1, 1, 1}, {3, 100}, 0.5);
  check_sampling(DType::f32, {}, {1, 1, 50, 60}, {20, 20}, 1);  // more than a tile
  check_sampling(DType::f32, {}, {2, 40, 4, 5}, {3, 3}, 1);     // more channels than a thread takes
}

TEST_CASE("a gradient for every element, at the edges of tiles too") {
  const int64_t rows = 3, columns = 700;
  const Buffer grid = make(DType::f32, {1, rows, columns, 2}), grad = uniform(DType::f32, {1, 1, rows, columns}, 1),
               x = uniform(DType::f32, {1, 1, rows, columns}, 2), dx = poisoned(DType::f32, {1, 1, rows, columns});
  for (int64_t i = 0; i < rows * columns; ++i) {
    set(grid.view, 2 * i, double(2 * (i % columns) + 1) / double(columns) - 1);
    set(grid.view, 2 * i + 1, double(2 * (i / columns) + 1) / double(rows) - 1);
  }
  const OnDevice dev_grid(grid), dev_grad(grad), dev_x(x), dev_dx(dx);
  cuda::grid_sample_backward(queue(), {SampleMode::nearest}, dev_grad, dev_x, dev_grid, dev_dx, {});
  dev_dx.fetch();
  CHECK(dx.values() == grad.values());
}

TEST_CASE("infinite coordinates read nothing, and those of NaN give NaN") {
  const double nan = std::nan("");
  for (SampleMode mode : {SampleMode::bilinear, SampleMode::nearest, SampleMode::bicubic}) {
    for (SamplePadding padding : {SamplePadding::zeros, SamplePadding::border, SamplePadding::reflection}) {
      const SampleArgs args{mode, padding, false};
      const double inf = padding == SamplePadding::zeros ? INFINITY : 9;  // bicubic weights of infinity are NaN
      const Buffer x = uniform(DType::f32, {1, 1, 3, 3}, 1), g = uniform(DType::f32, {1, 1, 1, 4}, 2),
                   grid = make(DType::f32, {1, 1, 4, 2}, {0.1, nan, nan, 9, 1e30, -1e30, inf, 0});
      const Buffer y = poisoned(DType::f32, {1, 1, 1, 4}), dx = poisoned(DType::f32, {1, 1, 3, 3}),
                   dgrid = poisoned(DType::f32, {1, 1, 4, 2});
      const Buffer want = make(DType::f32, {1, 1, 1, 4}), want_dx = make(DType::f32, {1, 1, 3, 3}),
                   want_dgrid = make(DType::f32, {1, 1, 4, 2});
      cpu().grid_sample(args, x, grid, want);
      cpu().grid_sample_backward(args, g, x, grid, want_dx, want_dgrid);
      const OnDevice dev_x(x), dev_grid(grid), dev_y(y), dev_g(g), dev_dx(dx), dev_dgrid(dgrid);
      cuda::grid_sample(queue(), args, dev_x, dev_grid, dev_y);
      cuda::grid_sample_backward(queue(), args, dev_g, dev_x, dev_grid, dev_dx, dev_dgrid);
      for (const OnDevice* d : {&dev_y, &dev_dx, &dev_dgrid}) d->fetch();
      check_close(y, want, 2, 2e-5, "grid_sample");
      check_close(dx, want_dx, 2, 2e-5, "dx");
      if (mode != SampleMode::nearest) check_close(dgrid, want_dgrid, 2, 2e-4, "dgrid");
      const bool is_nan = mode != SampleMode::nearest;
      for (int64_t i = 0; i < 2; ++i) {
        CHECK(std::isnan(want[i]) == is_nan);
        for (int64_t d = 0; d < 2; ++d) CHECK(std::isnan(want_dgrid[2 * i + d]) == is_nan);
      }
      for (int64_t i = 0; i < 9; ++i) CHECK(std::isfinite(want_dx[i]));
      if (padding != SamplePadding::zeros) continue;
      CHECK(want[2] == 0);
      CHECK(want[3] == 0);
    }
  }
}

TEST_CASE("the CPU's results do not depend on the threads") {
  const Buffer x = uniform(DType::f32, {2, 20, 30, 31}, 1), grid = uniform(DType::f32, {2, 40, 41, 2}, 2, -1.2, 1.2);
  const Buffer g = uniform(DType::f32, {2, 20, 40, 41}, 3);
  same_for_any_threads([&] {
    const Buffer y = make(DType::f32, {2, 20, 40, 41}), dx = make(DType::f32, {2, 20, 30, 31}),
                 dgrid = make(DType::f32, {2, 40, 41, 2});
    cpu().grid_sample({}, x, grid, y);
    cpu().grid_sample_backward({}, g, x, grid, dx, dgrid);
    return y.raw() + dx.raw() + dgrid.raw();
  });
}
