// SPDX-License-Identifier: Apache-2.0
// Mean and variance against the CPU backend.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

void check_variance(const Buffer& x, const Shape& shape, double correction, bool with_mean = true, int64_t shift = 0) {
  const DType t = x.view.dtype, wide = t == DType::f64 ? t : DType::f32;
  const Buffer mean = poisoned(wide, shape), var = poisoned(t, shape), want_mean = make(wide, shape), want = make(t, shape);
  cpu().variance(x, correction, want_mean, want);
  const OnDevice dev_x(x, shift), dev_mean(mean), dev_var(var, shift);
  cuda::variance(queue(), dev_x, correction, with_mean ? dev_mean.view : TensorView{}, dev_var);
  dev_var.fetch();
  check_close(var, want, 2, t == DType::f64 ? 1e-12 : 2e-6, "variance");
  if (!with_mean) return;
  dev_mean.fetch();
  check_close(mean, want_mean, 2, t == DType::f64 ? 1e-12 : 1e-6, "mean");
}

}  // namespace

TEST_CASE("variance of rows, columns and everything") {
  for (DType t : kFloating) {
    for (const Shape& shape : {Shape{3, 31}, Shape{9, 33}, Shape{40, 257}, Shape{2, 1025}, Shape{600, 40}}) {
      check_variance(uniform(t, shape, 1), {shape[0], 1}, 1);
      check_variance(uniform(t, shape, 2), {1, shape[1]}, 0, false);
      check_variance(uniform(t, shape, 3, 1, 3), {1, 1}, 1, true, 1);
    }
    for (Layout layout : kLayouts) check_variance(uniform(t, {4, 9, 33}, 4, -2, 2, layout), {1, 9, 1}, 1);
  }
  check_variance(uniform(DType::f32, {1, 20000}, 5), {1, 1}, 1);
  check_variance(uniform(DType::f32, {1, 300000}, 5), {1, 1}, 1);  // more segments than a warp has lanes
}

TEST_CASE("variance in packs: channels of images and of rows, in one segment and in several") {
  for (DType t : kStored) {
    for (int64_t shift : {0, 1, 8}) {
      for (int64_t inner : {8, 40, 56}) check_variance(uniform(t, {7, 5, inner}, 1, 1, 3), {1, 5, 1}, 0, true, shift);
      check_variance(uniform(t, {9, 3, 1032}, 2, -1, 5), {1, 3, 1}, 1, true, shift);  // a segment's end inside a run
      check_variance(uniform(t, {3, 2000}, 3, -1, 5), {3, 1}, 1, true, shift);
      // Fewer and more columns than a block takes; fewer and more rows, whole segments and not.
      for (int64_t rows : {3, 33, 512, 1100})
        for (int64_t columns : {8, 72, 136}) check_variance(uniform(t, {rows, columns}, 4, -1, 5), {1, columns}, 0, true, shift);
      check_variance(pitched(t, 70, 40, 48, 5), {1, 40}, 1, true, shift);
      check_variance(pitched(t, 70, 40, 41, 5), {1, 40}, 1, true, shift);
    }
  }
  // Far from zero, and where the first element is far from the rest.
  check_variance(uniform(DType::f32, {64, 8, 64}, 6, 9999, 10001), {1, 8, 1}, 1);
  check_variance(uniform(DType::f32, {600, 64}, 6, 9999, 10001), {1, 64}, 1);
  Buffer x = uniform(DType::f32, {2, 8, 64}, 7);
  for (int64_t c = 0; c < 8; ++c) set(x.view, c * 64, 1000);
  const Buffer var = poisoned(DType::f32, {1, 8, 1}), want = make(DType::f32, {1, 8, 1});
  cpu().variance(x, 1, TensorView{}, want);
  const OnDevice dev_x(x), dev_var(var);
  cuda::variance(queue(), dev_x, 1, TensorView{}, dev_var);
  dev_var.fetch();
  check_close(var, want, 16, 0, "variance with an outlier first");
}

TEST_CASE("variance of runs that are no whole packs: neighbours of a run do not count, nor does what lies behind the tensor") {
  for (DType t : kStored) {
    for (int64_t inner : {8, 9, 15, 49, 196}) check_variance(uniform(t, {7, 5, inner}, 1, 1, 3), {1, 5, 1}, 0);
    check_variance(uniform(t, {5, 49}, 2, -1, 5), {5, 1}, 1);
    check_variance(uniform(t, {5, 3, 3001}, 3, -1, 5), {1, 3, 1}, 1);  // segments that begin and end inside a run
    check_variance(uniform(t, {3, 20001}, 4, -1, 5), {3, 1}, 1);
  }
  Buffer x = uniform(DType::f16, {3, 3, 49}, 5, 1, 2);
  for (int64_t n = 0; n < 3; ++n)
    for (int64_t i = 0; i < 49; ++i)
      for (int64_t c : {0, 2}) set(x.view, (n * 3 + c) * 49 + i, i % 2 ? 60000 : std::nan(""));
  const Buffer var = poisoned(DType::f16, {1, 3, 1}), want = make(DType::f16, {1, 3, 1});
  cpu().variance(x, 1, TensorView{}, want);
  const OnDevice dev_x(x), dev_var(var);
  cuda::variance(queue(), dev_x, 1, TensorView{}, dev_var);
  dev_var.fetch();
  CHECK(var[1] > 0);
  CHECK(close(DType::f16, var[1], want[1], 2, 0));
  CHECK(std::isnan(var[0]));
}

TEST_CASE("variance of one element, of none, and far from zero") {
  check_variance(uniform(DType::f32, {}, 1), {}, 1);
  check_variance(uniform(DType::f32, {3, 1}, 1), {3, 1}, 0);
  check_variance(make(DType::f32, {2, 0}), {2, 1}, 1);
  check_variance(uniform(DType::f32, {2, 3000}, 1, 9999, 10001), {2, 1}, 1);
}

TEST_CASE("segments whose means differ are joined: the first far from the rest, the last short, one with NaN") {
  for (DType t : {DType::f32, DType::f16, DType::f64}) {
    for (int64_t columns : {3, 8, 42, 136}) {
      const int64_t rows = 3000;
      const Buffer x = uniform(t, {rows, columns}, 8, -1, 1);
      const auto level = [&](int64_t row) { return row < 256 ? 200.0 : double(row / 256 % 3); };
      for (int64_t i = 0; i < rows * columns; ++i) set(x.view, i, x[i] + level(i / columns));
      set(x.view, columns - 1, std::nan(""));
      set(x.view, rows * columns - 2, std::nan(""));
      const Shape shape{1, columns};
      const Buffer mean = poisoned(DType::f64, shape), var = poisoned(DType::f64, shape), want_mean = make(DType::f64, shape),
                   want = make(DType::f64, shape);
      cpu().variance(x, 1, want_mean, want);
      const OnDevice dev_x(x), dev_mean(mean), dev_var(var);
      cuda::variance(queue(), dev_x, 1, dev_mean, dev_var);
      dev_var.fetch();
      dev_mean.fetch();
      const double tolerance = t == DType::f64 ? 1e-13 : 1e-6;
      for (int64_t c = 0; c < columns; ++c) {
        CHECK(std::isnan(var[c]) == (c >= columns - 2));
        CHECK(std::isnan(mean[c]) == (c >= columns - 2));
        if (c >= columns - 2) continue;
        CHECK(std::fabs(var[c] - want[c]) <= tolerance * want[c]);
        CHECK(std::fabs(mean[c] - want_mean[c]) <= tolerance * want_mean[c]);
      }
    }
  }
}
