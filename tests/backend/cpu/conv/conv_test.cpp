// SPDX-License-Identifier: Apache-2.0
// Convolutions on the CPU against loops in double: shapes that choose each of the ways there are.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Problem {
  const char* what;
  int64_t images, channels, filters, groups;
  Window window;
  Spatial in;
  int64_t after = -1;  // zeros behind the input; -1: as many as before it

  Spatial out() const {
    Spatial o{1, 1, 1};
    for (size_t d = 0; d < size_t(window.dims); ++d) {
      const int64_t zeros = window.padding[d] + (after < 0 ? window.padding[d] : after);
      o[d] = (in[d] + zeros - window.dilation[d] * (window.size[d] - 1) - 1) / window.stride[d] + 1;
    }
    return o;
  }
  Shape shape(int64_t a, int64_t b, const Spatial& s) const {
    Shape result{a, b};
    for (int d = 0; d < window.dims; ++d) result.push_back(s[size_t(d)]);
    return result;
  }
  Shape x() const { return shape(images, channels, in); }
  Shape weight() const { return shape(filters, channels / groups, window.size); }
  Shape y() const { return shape(images, filters, out()); }
};

const Problem kProblems[] = {
    {"winograd", 2, 16, 32, 1, {.dims = 2, .size = {3, 3, 1}, .padding = {1, 1, 0}}, {9, 11, 1}},
    {"blocks",
     2,
     16,
     16,
     1,
     {.dims = 2, .size = {3, 2, 1}, .stride = {2, 1, 1}, .padding = {1, 0, 0}, .dilation = {1, 2, 1}},
     {8, 7, 1}},
    {"few channels", 2, 3, 8, 1, {.dims = 2, .size = {5, 5, 1}, .stride = {2, 2, 1}, .padding = {2, 2, 0}}, {11, 9, 1}},
    {"one tap", 3, 5, 7, 1, {.dims = 2}, {4, 6, 1}},
    {"one tap, stride", 2, 5, 7, 1, {.dims = 2, .stride = {2, 3, 1}}, {5, 7, 1}},
    {"depthwise", 2, 16, 16, 16, {.dims = 2, .size = {3, 3, 1}, .padding = {1, 1, 0}}, {6, 5, 1}},
    {"odd groups", 2, 6, 9, 3, {.dims = 2, .size = {2, 3, 1}, .padding = {1, 1, 0}}, {5, 6, 1}},
    {"zeros behind only", 2, 16, 16, 1, {.dims = 2, .size = {2, 2, 1}}, {5, 6, 1}, 1},
    {"pixels that no window sees", 1, 3, 4, 1, {.dims = 2, .size = {2, 2, 1}, .stride = {4, 4, 1}}, {9, 7, 1}},
    {"all taps in the padding", 1, 2, 3, 1, {.dims = 2, .size = {1, 2, 1}, .padding = {3, 2, 0}}, {1, 1, 1}},
    {"line", 3, 16, 24, 1, {.dims = 1, .size = {3, 1, 1}, .stride = {2, 1, 1}, .padding = {2, 0, 0}}, {21, 1, 1}},
    {"volume", 2, 4, 16, 2, {.dims = 3, .size = {2, 3, 2}, .stride = {1, 2, 1}, .padding = {1, 0, 1}}, {4, 5, 3}},
};

// f(x, weight, y: row-major indices) for every product of the convolution.
void for_each_product(const Problem& p, const std::function<void(int64_t, int64_t, int64_t)>& f) {
  const Spatial extents = p.out();
  const int64_t each = p.channels / p.groups, filters_each = p.filters / p.groups;
  const int64_t *const out = extents.data(), *const in = p.in.data(), *const size = p.window.size.data(),
                       *const stride = p.window.stride.data(), *const padding = p.window.padding.data(),
                       *const dilation = p.window.dilation.data();
  int64_t o[3], k[3], i[3];
  for (int64_t n = 0; n < p.images; ++n)
    for (int64_t filter = 0; filter < p.filters; ++filter)
      for (o[0] = 0; o[0] < out[0]; ++o[0])
        for (o[1] = 0; o[1] < out[1]; ++o[1])
          for (o[2] = 0; o[2] < out[2]; ++o[2])
            for (int64_t c = 0; c < each; ++c)
              for (k[0] = 0; k[0] < size[0]; ++k[0])
                for (k[1] = 0; k[1] < size[1]; ++k[1])
                  for (k[2] = 0; k[2] < size[2]; ++k[2]) {
                    bool inside = true;
                    for (int d = 0; d < 3; ++d) {
                      i[d] = o[d] * stride[d] - padding[d] + k[d] * dilation[d];
                      inside = inside && i[d] >= 0 && i[d] < in[d];
                    }
                    if (!inside) continue;
                    const int64_t channel = filter / filters_each * each + c;
                    f((((n * p.channels + channel) * in[0] + i[0]) * in[1] + i[1]) * in[2] + i[2],
                      (((filter * each + c) * size[0] + k[0]) * size[1] + k[1]) * size[2] + k[2],
                      (((n * p.filters + filter) * out[0] + o[0]) * out[1] + o[1]) * out[2] + o[2]);
                  }
}

void check_result(const Buffer& got, const std::vector<double>& want, const std::string& what) {
  double largest = 1;
  for (double v : want) largest = std::max(largest, std::abs(v));
  const DType t = got.view.dtype;
  int64_t bad = -1;
  for (int64_t i = 0; i < got.numel() && bad < 0; ++i)
    if (!close(t, got[i], want[size_t(i)], 1.1, (t == DType::f64 ? 1e-14 : 4e-6) * largest)) bad = i;
  CHECK_MESSAGE(bad < 0, what, " ", name(t), " at ", bad, ": ", bad < 0 ? 0.0 : got[bad], ", not ",
                bad < 0 ? 0.0 : want[size_t(bad)]);
}

void check_problem(const Problem& p, DType t, bool wide_results, MemoryFormat format = MemoryFormat::contiguous) {
  const Buffer x = laid(uniform(t, p.x(), 1), format), weight = laid(uniform(t, p.weight(), 2), format),
               y = laid(uniform(t, p.y(), 3), format), bias = uniform(t, {p.filters}, 4),
               channel_bias = uniform(t, {p.channels}, 5);
  const DType to = wide_results && is_half(t) ? DType::f32 : t;
  const auto xs = x.values(), ws = weight.values(), ys = y.values();
  const int64_t pixels = p.in[0] * p.in[1] * p.in[2], positions = p.out()[0] * p.out()[1] * p.out()[2];
  std::vector<double> forward(ys.size()), data(xs.size()), kernel(ws.size()), sums(size_t(p.filters));
  for_each_product(p, [&](int64_t i, int64_t k, int64_t o) {
    forward[size_t(o)] += xs[size_t(i)] * ws[size_t(k)];
    data[size_t(i)] += ys[size_t(o)] * ws[size_t(k)];
    kernel[size_t(k)] += xs[size_t(i)] * ys[size_t(o)];
  });
  for (size_t i = 0; i < ys.size(); ++i) sums[i / size_t(positions) % size_t(p.filters)] += ys[i];

  const Buffer out = laid(make(to, p.y()), format), dx = laid(make(to, p.x()), format), dw = laid(make(to, p.weight()), format),
               db = make(to, {p.filters});
  const std::string what = p.what;
  cpu().conv(x, weight, {}, p.window, p.groups, false, out);
  check_result(out, forward, what + ", forward");
  cpu().conv_backward_data(y, weight, {}, p.window, p.groups, dx);
  check_result(dx, data, what + ", data");
  cpu().conv_backward_weight(x, y, p.window, p.groups, dw, db);
  check_result(dw, kernel, what + ", weight");
  check_result(db, sums, what + ", bias");

  for (size_t i = 0; i < forward.size(); ++i) forward[i] += bias[int64_t(i) / positions % p.filters];
  for (size_t i = 0; i < data.size(); ++i) data[i] += channel_bias[int64_t(i) / pixels % p.channels];
  cpu().conv(x, weight, bias, p.window, p.groups, false, out);
  check_result(out, forward, what + ", forward with bias");
  for (double& v : forward) v = std::max(v, 0.0);
  cpu().conv(x, weight, bias, p.window, p.groups, true, out);
  check_result(out, forward, what + ", forward with bias and relu");
  cpu().conv_backward_data(y, weight, channel_bias, p.window, p.groups, dx);
  check_result(dx, data, what + ", transposed with bias");

  const Buffer dense = make(t, p.weight());
  cpu().copy(weight, dense);
  const ConvArgs args{x.view, weight.view, bias.view, p.window, p.groups, true, out.view};
  if (const size_t bytes = cpu().laid_weight_layout(args).bytes) {
    const Buffer laid_weight = make(DType::u8, {int64_t(bytes)});
    cpu().lay_weight(args, dense, laid_weight);
    cpu().conv_laid(args, laid_weight);
    check_result(out, forward, what + ", forward with a laid weight");
  }
}

// y of conv_laid, beside conv's before it is rounded to 16 bits, for an image of noise; and the bytes of the laid weight.
size_t check_laid(const Problem& p, DType t, MemoryFormat format) {
  const Buffer x = laid(uniform(t, p.x(), 1), format), weight = laid(uniform(t, p.weight(), 2), format),
               dense = make(t, p.weight()), bias = uniform(t, {p.filters}, 4), got = laid(make(t, p.y()), format),
               want = laid(make(is_half(t) ? DType::f32 : t, p.y()), format);
  const ConvArgs args{x.view, weight.view, bias.view, p.window, p.groups, false, got.view};
  const size_t bytes = cpu().laid_weight_layout(args).bytes;
  if (bytes == 0) return 0;
  cpu().copy(weight, dense);
  const Buffer kept = make(DType::u8, {int64_t(bytes)});
  cpu().lay_weight(args, dense, kept);
  cpu().conv(x, weight, bias, p.window, p.groups, false, want);
  cpu().fill(weight, NAN);  // which is not read
  cpu().conv_laid(args, kept);
  check_result(got, want.values(), std::string(p.what) + ", laid");
  return bytes;
}

}  // namespace

TEST_CASE("convolutions of every kind and dtype") {
  for (const Problem& p : kProblems) {
    for (DType t : kFloating) {
      check_problem(p, t, false);
      if (is_half(t)) check_problem(p, t, true);
    }
  }
}

TEST_CASE("convolutions of images and volumes in channels_last") {
  for (const Problem& p : kProblems) {
    if (p.window.dims == 1) continue;
    for (DType t : kFloating) {
      check_problem(p, t, false, MemoryFormat::channels_last);
      if (is_half(t)) check_problem(p, t, true, MemoryFormat::channels_last);
    }
  }
}

TEST_CASE("the schedule follows the number of threads") {
  for (int threads : {1, 3, 2}) {
    set_num_threads(threads);
    for (DType t : {DType::f32, DType::bf16}) check_problem(kProblems[0], t, false);
  }
  set_num_threads(0);
}

TEST_CASE("threads share the images of a convolution") {
  const Problem uneven{"uneven pieces", 5, 2, 8, 1, {.dims = 2, .size = {2, 2, 1}}, {40, 40, 1}};
  for (int threads : {2, 3}) {
    set_num_threads(threads);
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      check_problem(uneven, DType::f32, false, format);
      check_problem(uneven, DType::bf16, false, format);
      check_problem(uneven, DType::bf16, true, format);
      check_problem(uneven, DType::f16, false, format);
      check_problem(uneven, DType::f16, true, format);
    }
  }
  set_num_threads(2);
  for (DType t : {DType::f32, DType::f16}) {  // images in float16 are widened a piece at a time
    check_problem({"winograd", 7, 16, 16, 1, {.dims = 2, .size = {3, 3, 1}, .padding = {1, 1, 0}}, {20, 20, 1}}, t, false);
    check_problem({"more pieces than threads", 5, 8, 8, 8, {.dims = 2, .size = {3, 3, 1}}, {96, 96, 1}}, t, false);
  }
  set_num_threads(0);
}

TEST_CASE("convolutions that are cut by their shapes") {
  const ByShape cut;
  const Window three{.dims = 2, .size = {3, 3, 1}, .padding = {1, 1, 0}};
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      for (DType t : {DType::f32, DType::bf16, DType::f16}) {
        check_problem({"parts of the filters", 2, 40, 112, 1, three, {5, 6, 1}}, t, false, format);
        check_problem({"pieces of the images", 9, 8, 16, 1, three, {28, 28, 1}}, t, false, format);
      }
    }
  }
}

TEST_CASE("a weight is laid out once for many convolutions") {
  const Window three{.dims = 2, .size = {3, 3, 1}, .padding = {1, 1, 0}};
  const Problem small{"winograd", 1, 32, 32, 1, three, {8, 8, 1}}, large{"no winograd", 1, 512, 512, 1, three, {5, 6, 1}},
      many{"images for each thread", 6, 64, 64, 1, three, {14, 14, 1}},
      wide{"much larger images than weights", 1, 2, 2, 1, three, {64, 64, 1}};
  const bool onednn = cpu().describe().find("products: oneDNN") != std::string::npos;
  for (int threads : {1, 2}) {
    set_num_threads(threads);
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      for (const Problem* const p : {&small, &large, &many}) {
        const size_t laid = check_laid(*p, DType::f32, format);
#if defined(__x86_64__)  // elsewhere the library has convolutions of its own for some CPUs alone
        CHECK_MESSAGE((laid > 0) == onednn, p->what);
#else
        if (!onednn) CHECK_MESSAGE(laid == 0, p->what);
#endif
        check_laid(*p, DType::bf16, format);
      }
      CHECK(check_laid(large, DType::f32, format) < size_t(16) << 20);
      CHECK(check_laid(small, DType::f64, format) == 0);
      CHECK(check_laid(wide, DType::f32, format) == 0);
    }
  }
  set_num_threads(0);
}

TEST_CASE("the same convolution gives the same bits") {
  for (DType t : kFloating) {
    const Problem& p = kProblems[0];
    const Buffer x = uniform(t, p.x(), 1), y = uniform(t, p.y(), 3), first = make(t, p.weight()), again = make(t, p.weight());
    cpu().conv_backward_weight(x, y, p.window, p.groups, first, {});
    cpu().conv_backward_weight(x, y, p.window, p.groups, again, {});
    CHECK(first.raw() == again.raw());
  }
}

TEST_CASE("more shapes than are remembered, and back to the first") {
  for (int64_t n : {1, 300}) {
    for (int64_t width = 20; width < 20 + n; ++width) {
      const Problem p{"many", 1, 8, 8, 1, {.dims = 1, .size = {3, 1, 1}}, {width, 1, 1}};
      const Buffer x = uniform(DType::f32, p.x(), 1), w = uniform(DType::f32, p.weight(), 2), y = make(DType::f32, p.y());
      cpu().conv(x, w, {}, p.window, 1, false, y);
    }
    check_problem({"again", 1, 8, 8, 1, {.dims = 1, .size = {3, 1, 1}}, {20, 1, 1}}, DType::f32, false);
  }
}

TEST_CASE("convolutions of nothing") {
  for (DType t : kFloating) {
    const Window w{.dims = 2, .size = {2, 2, 1}};
    const Buffer no_images = make(t, {0, 2, 3, 3}), weight = uniform(t, {4, 2, 2, 2}, 1), none = make(t, {0, 4, 2, 2}),
                 dw = make(t, {4, 2, 2, 2}), db = make(t, {4});
    cpu().conv(no_images, weight, {}, w, 1, false, none);
    cpu().conv_backward_data(none, weight, {}, w, 1, no_images);
    cpu().conv_backward_weight(no_images, none, w, 1, dw, db);
    CHECK(dw.values() == std::vector<double>(32, 0));
    CHECK(db.values() == std::vector<double>(4, 0));

    const Buffer no_channels = make(t, {1, 0, 3, 3}), no_taps = make(t, {2, 0, 2, 2}), bias = make(t, {2}, {1, -2}),
                 y = make(t, {1, 2, 2, 2});
    cpu().conv(no_channels, no_taps, bias, w, 1, false, y);
    CHECK(y.values() == std::vector<double>{1, 1, 1, 1, -2, -2, -2, -2});
  }
}
