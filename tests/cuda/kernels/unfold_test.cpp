// SPDX-License-Identifier: Apache-2.0
// Windows as columns and back, and the convolutions made of them, against the CPU backend.
#include "cuda/kernels/kernels.h"
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Case {
  int64_t images, channels;
  Window window;
  Spatial in, out;
};

Shape shape_of(int64_t a, int64_t b, const Spatial& s, int dims) {
  Shape shape{a, b};
  for (int d = 0; d < dims; ++d) shape.push_back(s[size_t(d)]);
  return shape;
}
int64_t product(const Spatial& s) { return s[0] * s[1] * s[2]; }

// Rows that are whole packs, that are not, and larger than a block.
const Case kCases[] = {
    {2, 3, {.dims = 1, .size = {3, 1, 1}, .padding = {1, 0, 0}}, {33, 1, 1}, {33, 1, 1}},
    {1,
     2,
     {.dims = 1, .size = {4, 1, 1}, .stride = {3, 1, 1}, .padding = {2, 0, 0}, .dilation = {2, 1, 1}},
     {31, 1, 1},
     {10, 1, 1}},
    {2, 2, {.dims = 2, .size = {3, 2, 1}, .padding = {1, 0, 0}}, {5, 33, 1}, {5, 32, 1}},
    {2,
     3,
     {.dims = 2, .size = {2, 3, 1}, .stride = {2, 1, 1}, .padding = {0, 1, 0}, .dilation = {1, 2, 1}},
     {6, 20, 1},
     {3, 18, 1}},
    {3, 1, {.dims = 2, .size = {2, 2, 1}}, {3, 7, 1}, {3, 8, 1}},  // reads behind the last pixels
    {1, 2, {.dims = 2, .stride = {3, 2, 1}}, {7, 9, 1}, {3, 5, 1}},
    {1, 2, {.dims = 3, .size = {2, 2, 2}}, {3, 4, 8}, {2, 3, 7}},
    {1, 2, {.dims = 3, .size = {2, 1, 3}, .stride = {1, 2, 1}, .padding = {1, 0, 1}}, {2, 5, 8}, {3, 3, 8}},
};

// A float32 result of 16-bit operands as cuDNN has it: rounded to their dtype, and widened.
Buffer rounded(const Buffer& b, DType t) {
  const Buffer out = make(t, b.view.shape);
  for (int64_t i = 0; i < b.numel(); ++i) set(out.view, i, b[i]);
  return out;
}

}  // namespace

TEST_CASE("unfold and fold over dtypes and windows") {
  for (const Case& c : kCases) {
    const int dims = c.window.dims;
    const Shape image = shape_of(c.images, c.channels, c.in, dims),
                columns{c.images, c.channels * product(c.window.size), product(c.out)};
    for (DType t : kFloating) {
      for (int64_t shift : {0, 1}) {
        const Buffer x = uniform(t, image, 1), want = make(t, columns), got = poisoned(t, columns);
        const OnDevice dev_x(x, shift), dev_got(got, shift);
        cpu().unfold(x, c.window, c.out, want);
        cuda::unfold(queue(), dev_x, c.window, c.out, dev_got);
        dev_got.fetch();
        check_close(got, want, 0, 0, "unfold");
      }
      for (DType from : {t, DType::f32}) {
        if (from != t && !is_half(t)) continue;
        const Buffer x = uniform(from, columns, 2), want = make(t, image), got = poisoned(t, image);
        const OnDevice dev_x(x), dev_got(got);
        cpu().fold(x, c.window, c.out, want);
        cuda::fold(queue(), dev_x, c.window, c.out, dev_got);
        dev_got.fetch();
        check_close(got, want, 0, 0, "fold");
      }
    }
  }
}

TEST_CASE("convolutions") {
  for (const Case& c : kCases) {
    for (int64_t groups : {int64_t(1), c.channels}) {
      const int dims = c.window.dims;
      const int64_t filters = 2 * groups;
      for (DType t : kFloating) {
        const Buffer x = uniform(t, shape_of(c.images, c.channels, c.in, dims), 1),
                     weight = uniform(t, shape_of(filters, c.channels / groups, c.window.size, dims), 2),
                     grad = uniform(t, shape_of(c.images, filters, c.out, dims), 3), bias = uniform(t, {filters}, 4),
                     channel_bias = uniform(t, {c.channels}, 5);
        const OnDevice dev_x(x), dev_weight(weight), dev_grad(grad), dev_bias(bias), dev_channel_bias(channel_bias);
        const DType to = is_half(t) && groups == 1 ? DType::f32 : t;
        const double slack = t == DType::f64 ? 1e-13 : 3e-5;
        for (bool biased : {false, true}) {
          const auto with = [&](const TensorView& v) { return biased ? v : TensorView{}; };
          const Buffer y = poisoned(t, grad.view.shape), want_y = make(t, grad.view.shape), dx = poisoned(to, x.view.shape),
                       want_dx = make(to, x.view.shape);
          const OnDevice dev_y(y), dev_dx(dx);
          for (bool relu : {false, true}) {
            cuda::conv(queue(), dev_x, dev_weight, with(dev_bias), c.window, groups, relu, dev_y);
            cpu().conv(x, weight, with(bias), c.window, groups, relu, want_y);
            dev_y.fetch();
            check_close(y, want_y, 2, slack, relu ? "conv with relu" : "conv");
          }
          cuda::conv_backward_data(queue(), dev_grad, dev_weight, with(dev_channel_bias), c.window, groups, dev_dx);
          cpu().conv_backward_data(grad, weight, with(channel_bias), c.window, groups, want_dx);
          dev_dx.fetch();
          // cuDNN adds no bias to rows: the result is rounded before the bias, and once more after it.
          const double before = biased && is_half(t) ? 4 * epsilon(t) : 0;
          check_close(rounded(dx, t), rounded(want_dx, t), 2, slack + before, "conv_backward_data");
        }
        const Buffer dw = poisoned(to, weight.view.shape), want_dw = make(to, weight.view.shape), db = poisoned(to, {filters}),
                     want_db = make(to, {filters});
        const OnDevice dev_dw(dw), dev_db(db);
        cuda::conv_backward_weight(queue(), dev_x, dev_grad, c.window, groups, dev_dw, dev_db);
        cpu().conv_backward_weight(x, grad, c.window, groups, want_dw, want_db);
        dev_dw.fetch();
        dev_db.fetch();
        check_close(rounded(dw, t), rounded(want_dw, t), 2, slack, "conv_backward_weight");
        check_close(db, want_db, 2, slack, "the bias's gradient");
      }
    }
  }
}
