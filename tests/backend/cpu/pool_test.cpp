// SPDX-License-Identifier: Apache-2.0
// Maxima of windows of two by two have code of their own; a loop over the elements is the reference, in bits and in indices.
#include <cmath>
#include <limits>

#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// Of the window at (row, column) of a plane of `width`: the first of the largest elements, or the first NaN.
int64_t largest_in_square(const TensorView& x, int64_t plane, int64_t row, int64_t column, int64_t height, int64_t width) {
  double best = -std::numeric_limits<double>::infinity();
  int64_t where = 2 * row * width + 2 * column;
  for (const int64_t i : {int64_t(0), int64_t(1)}) {
    for (const int64_t j : {int64_t(0), int64_t(1)}) {
      const int64_t at = (2 * row + i) * width + 2 * column + j;
      const double v = get(x, plane * height * width + at);
      if (v > best || (std::isnan(v) && !std::isnan(best))) best = v, where = at;
    }
  }
  return where;
}

bool same_number(double a, double b) { return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b)); }

constexpr DType kPositions[] = {DType::i64, DType::i32, DType::i16};

}  // namespace

TEST_CASE("maxima of squares: the first of equal elements, NaN, infinities, both zeros, any width") {
  const double special[] = {std::nan(""), -INFINITY, INFINITY, -0.0, 0.0, 1, 1, -2, 0.5, -0.0, 0.0, -INFINITY, -INFINITY};
  int n = 0;
  for (const DType t : kFloating) {
    for (const int64_t height : {2, 5}) {
      for (int64_t width = 2; width <= 23; ++width) {
        CAPTURE(name(t));
        CAPTURE(width);
        const int64_t planes = 6, rows = height / 2, columns = width / 2;
        const Buffer x = make(t, {2, 3, height, width}), y = make(t, {2, 3, rows, columns}), alone = make(t, y.view.shape);
        const Buffer indices = make(kPositions[++n % 3], y.view.shape);
        for (int64_t i = 0; i < x.numel(); ++i) set(x.view, i, special[(7 * i + i / 13 + width) % 13]);
        PoolArgs args;
        args.window.size = args.window.stride = {2, 2, 1};
        cpu().max_pool(x, args, y, indices);
        cpu().max_pool(x, args, alone, TensorView{});
        int wrong = 0;
        for (int64_t i = 0; i < y.numel(); ++i) {
          const int64_t plane = i / (rows * columns), row = i / columns % rows, column = i % columns;
          const int64_t where = largest_in_square(x, plane, row, column, height, width);
          const double want = get(x, plane * height * width + where);
          wrong += int64_t(indices[i]) != where || !same_number(y[i], want) || !same_number(alone[i], want);
        }
        CHECK(wrong == 0);
        CHECK(y.numel() == planes * rows * columns);
      }
    }
  }
}

TEST_CASE("maxima of windows that overlap: the first of equal elements, NaN, infinities, both zeros") {
  const double special[] = {std::nan(""), -INFINITY, INFINITY, -0.0, 0.0, 1, 1, -2, 0.5, -0.0, 0.0, -INFINITY, -INFINITY};
  const Window windows[] = {{.size = {3, 3, 1}, .stride = {2, 2, 1}, .padding = {1, 1, 0}},
                            {.size = {3, 3, 1}, .stride = {1, 1, 1}},
                            {.size = {2, 5, 1}, .stride = {3, 3, 1}, .padding = {1, 2, 0}},
                            {.size = {3, 2, 1}, .stride = {1, 1, 1}, .padding = {1, 1, 0}, .dilation = {2, 3, 1}}};
  int n = 0;
  for (const DType t : kFloating) {
    for (const Window& w : windows) {
      for (const int64_t width : {5, 9, 16, 37, 70}) {
        CAPTURE(name(t));
        CAPTURE(width);
        const int64_t height = 9, planes = 6;
        const auto outputs = [&](int64_t in, size_t d) {
          return (in + 2 * w.padding[d] - w.dilation[d] * (w.size[d] - 1) - 1) / w.stride[d] + 1;
        };
        const int64_t rows = outputs(height, 0), columns = outputs(width, 1);
        const Buffer x = make(t, {2, 3, height, width}), y = make(t, {2, 3, rows, columns}), alone = make(t, y.view.shape);
        const Buffer indices = make(kPositions[++n % 3], y.view.shape);
        for (int64_t i = 0; i < x.numel(); ++i) set(x.view, i, special[(7 * i + i / 13 + width) % 13]);
        PoolArgs args;
        args.window = w;
        cpu().max_pool(x, args, y, indices);
        cpu().max_pool(x, args, alone, TensorView{});
        int wrong = 0;
        for (int64_t i = 0; i < y.numel(); ++i) {
          const int64_t plane = i / (rows * columns), row = i / columns % rows, column = i % columns;
          double best = -INFINITY;
          int64_t where = -1;
          for (int64_t a = 0; a < w.size[0]; ++a) {
            for (int64_t b = 0; b < w.size[1]; ++b) {
              const int64_t iy = row * w.stride[0] - w.padding[0] + a * w.dilation[0];
              const int64_t ix = column * w.stride[1] - w.padding[1] + b * w.dilation[1];
              if (iy < 0 || iy >= height || ix < 0 || ix >= width) continue;
              const double v = get(x, (plane * height + iy) * width + ix);
              if (where < 0 || v > best || (std::isnan(v) && !std::isnan(best))) best = v, where = iy * width + ix;
            }
          }
          wrong += int64_t(indices[i]) != where || !same_number(y[i], best) || !same_number(alone[i], best);
        }
        CHECK(wrong == 0);
        CHECK(y.numel() == planes * rows * columns);
      }
    }
  }
}
