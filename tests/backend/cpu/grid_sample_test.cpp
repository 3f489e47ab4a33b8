// SPDX-License-Identifier: Apache-2.0
// Bilinear samples of a plane have code of their own; a volume of one layer, with its general code, is the reference.
#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

Buffer with_shape(Buffer b, const Shape& shape) {
  b.view.shape = shape;
  b.view.strides = contiguous_strides(shape);
  return b;
}

void check_plane(DType t, bool align_corners, const Shape& in, int64_t points) {
  const SampleArgs args{SampleMode::bilinear, SamplePadding::zeros, align_corners};
  const int64_t n = in[0], c = in[1];
  const Buffer x = uniform(t, in, 1), grid = uniform(t, {n, 1, points, 2}, 2, -1.7, 1.7), g = uniform(t, {n, c, 1, points}, 3);
  const double special[] = {std::nan(""), INFINITY, -INFINITY, 1e30, -1, 1, 0};
  for (int64_t i = 0; i < 49 && 4 * i + 1 < grid.numel(); ++i) {
    set(grid.view, 4 * i, special[i % 7]);
    set(grid.view, 4 * i + 1, special[i / 7]);
    if (i == 1) set(g.view, 2 * i, INFINITY);  // of a point that lies outside: nobody's gradient
  }
  const Buffer y = make(t, {n, c, 1, points}), dx = make(t, in), dgrid = make(t, {n, 1, points, 2});
  cpu().grid_sample(args, x, grid, y);
  cpu().grid_sample_backward(args, g, x, grid, dx, dgrid);

  const Buffer deep = make(t, {n, 1, 1, points, 3});
  for (int64_t i = 0; i < n * points; ++i) {
    set(deep.view, 3 * i, grid[2 * i]);
    set(deep.view, 3 * i + 1, grid[2 * i + 1]);
    set(deep.view, 3 * i + 2, 0);
  }
  const Shape volume{n, c, 1, in[2], in[3]}, out{n, c, 1, 1, points};
  const Buffer want = make(t, out), want_dx = make(t, volume), want_grid = make(t, deep.view.shape);
  const Buffer layer = with_shape(x, volume), layer_g = with_shape(g, out);
  cpu().grid_sample(args, layer, deep, want);
  cpu().grid_sample_backward(args, layer_g, layer, deep, want_dx, want_grid);
  int wrong = 0;
  const double some = t == DType::f64 ? 1e-13 : 1e-5;
  for (int64_t i = 0; i < y.numel(); ++i) wrong += !close(t, y[i], want[i], 2, some);
  CHECK(wrong == 0);
  for (int64_t i = 0; i < dx.numel(); ++i) wrong += !close(t, dx[i], want_dx[i], 2, 10 * some);
  CHECK(wrong == 0);
  for (int64_t i = 0; i < n * points; ++i)
    for (int d : {0, 1}) wrong += !close(t, dgrid[2 * i + d], want_grid[3 * i + d], 2, 10 * some);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("a plane sampled bilinearly is a volume of one layer") {
  for (DType t : {DType::f32, DType::f64, DType::bf16}) {
    for (bool align_corners : {false, true}) {
      check_plane(t, align_corners, {2, 3, 5, 7}, 300);
      check_plane(t, align_corners, {1, 20, 1, 9}, 600);
      check_plane(t, align_corners, {1, 1, 1, 1}, 40);
    }
  }
}
