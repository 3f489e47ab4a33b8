// SPDX-License-Identifier: Apache-2.0
// Pooling against the CPU backend.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct PoolCase {
  Shape in, out;  // without batch and channels
  PoolArgs args;
};

Shape planes(const Shape& sizes, int64_t channels = 3) {
  Shape s{2, channels};
  for (int64_t n : sizes) s.push_back(n);
  return s;
}

constexpr int64_t kFar = int64_t(1) << 33;

const PoolCase kPoolCases[] = {
    {{1}, {1}, {.window = {.dims = 1, .size = {1, 1, 1}}}},
    {{33}, {16}, {.window = {.dims = 1, .size = {3, 1, 1}, .stride = {2, 1, 1}}}},
    {{5000}, {2500}, {.window = {.dims = 1, .size = {2, 1, 1}, .stride = {2, 1, 1}}}},
    {{31, 32}, {15, 16}, {.window = {.size = {2, 2, 1}, .stride = {2, 2, 1}}}},
    {{31, 33}, {16, 17}, {.window = {.size = {3, 3, 1}, .stride = {2, 2, 1}, .padding = {1, 1, 0}}}},
    {{31, 33}, {16, 17}, {.window = {.size = {3, 3, 1}, .stride = {2, 2, 1}, .padding = {1, 1, 0}}, .count_include_pad = false}},
    {{7, 8}, {5, 6}, {.window = {.size = {3, 3, 1}}, .divisor = 4}},
    {{12, 10}, {2, 1}, {.window = {.size = {9, 10, 1}, .stride = {3, 1, 1}}}},
    {{4, 5, 3}, {4, 2, 2}, {.window = {.dims = 3, .size = {2, 3, 2}, .stride = {1, 2, 1}, .padding = {1, 0, 0}}}},
    {{7, 5}, {3, 2}, {.window = {.dims = 2}, .adaptive = true}},
    {{3, 4}, {5, 7}, {.window = {.dims = 2}, .adaptive = true}},
    {{33, 32}, {1, 1}, {.window = {.dims = 2}, .adaptive = true}},
    {{3, 5, 4}, {2, 5, 1}, {.window = {.dims = 3}, .adaptive = true}},
    {{6, 7, 8}, {2, 2, 1}, {.window = {.dims = 3}, .adaptive = true}},  // a window of a block
    // Indices of 64 bits, since the step to a second window would need them.
    {{31, 33}, {16, 1}, {.window = {.size = {3, 3, 1}, .stride = {2, kFar, 1}, .padding = {1, 1, 0}}}},
    {{9, 8}, {1, 6}, {.window = {.size = {3, 3, 1}, .stride = {kFar, 1, 1}, .padding = {1, 0, 0}}, .count_include_pad = false}},
    {{4, 5, 3}, {4, 1, 2}, {.window = {.dims = 3, .size = {2, 3, 2}, .stride = {1, kFar, 1}, .padding = {1, 0, 0}}}},
    {{33, 32}, {17, 1}, {.window = {.size = {3, 32, 1}, .stride = {2, kFar, 1}, .padding = {1, 0, 0}}}},
    {{7, 5}, {3, 2}, {.window = {.dims = 2, .stride = {kFar, 1, 1}}, .adaptive = true}},
    {{3, 4}, {5, 7}, {.window = {.dims = 2, .stride = {kFar, 1, 1}}, .adaptive = true}},
};

Buffer out_like(DType t, const Shape& shape) { return poisoned(t, shape); }
constexpr MemoryFormat kFormats[] = {MemoryFormat::contiguous, MemoryFormat::channels_last};
constexpr DType kPositions[] = {DType::i64, DType::i32, DType::i16};

// Eight channels in channels_last are a pack.
struct Channels {
  MemoryFormat format;
  int64_t channels;
};
constexpr Channels kChannels[] = {
    {MemoryFormat::contiguous, 3}, {MemoryFormat::channels_last, 3}, {MemoryFormat::channels_last, 8}};

}  // namespace

TEST_CASE("maxima, their indices and gradients") {
  for (DType t : kFloating) {
    for (DType positions : kPositions) {
      for (const PoolCase& c : kPoolCases) {
        if (c.args.divisor) continue;
        for (const auto& [format, channels] : kChannels) {
          const Shape in = planes(c.in, channels), out = planes(c.out, channels);
          const Buffer x = laid(uniform(t, in, 1), format), grad = laid(uniform(t, out, 2), format);
          set(x.view, 0, std::nan(""));
          const Buffer y = laid(out_like(t, out), format), want = laid(make(t, out), format),
                       where = laid(out_like(positions, out), format), want_where = laid(make(positions, out), format);
          cpu().max_pool(x, c.args, want, want_where);
          const OnDevice dev_x(x), dev_y(y), dev_where(where), dev_grad(grad);
          cuda::max_pool(queue(), dev_x, c.args, dev_y, dev_where);
          dev_y.fetch();
          dev_where.fetch();
          check_close(y, want, 0, 0, "max_pool");
          check_close(where, want_where, 0, 0, "max_pool indices");

          const Buffer dx = laid(out_like(t, in), format), want_dx = laid(make(t, in), format);
          cpu().max_pool_backward(grad, want_where, c.args, want_dx);
          const OnDevice dev_dx(dx);
          cuda::max_pool_backward(queue(), dev_grad, dev_where, c.args, dev_dx);
          dev_dx.fetch();
          check_close(dx, want_dx, 0, 0, "max_pool_backward");

          if (positions != DType::i64) continue;
          const Buffer alone = laid(out_like(t, out), format);
          const OnDevice dev_alone(alone);
          cuda::max_pool(queue(), dev_x, c.args, dev_alone, {});
          dev_alone.fetch();
          check_close(alone, want, 0, 0, "max_pool without indices");
        }
      }
    }
  }
}

TEST_CASE("maxima of several channels a thread: equal ones, NaN, infinities, and memory that begins anywhere") {
  const double special[] = {std::nan(""), -INFINITY, INFINITY, -0.0, 0.0, 1, 1, -2, 0.5, -0.0, 0.0, -INFINITY, -INFINITY};
  const PoolArgs args{.window = {.size = {3, 3, 1}, .stride = {2, 2, 1}, .padding = {1, 1, 0}}};
  const MemoryFormat last = MemoryFormat::channels_last;
  for (DType t : kFloating) {
    for (DType positions : kPositions) {
      for (int64_t channels : {8, 24, 12}) {
        const Shape in{2, channels, 13, 10}, out{2, channels, 7, 5};
        const Buffer x = laid(make(t, in), last), want = laid(make(t, out), last), want_where = laid(make(positions, out), last);
        for (int64_t i = 0; i < x.numel(); ++i)  // of every third channel the upper lines are all -inf
          set(x.view, i, i / 130 % 3 == 0 && i % 130 < 50 ? -INFINITY : special[(7 * i + i / 13) % 13]);
        cpu().max_pool(x, args, want, want_where);
        for (int shifted : {0, 1, 2, 3}) {  // the input, the output, the indices or none of them
          const Buffer y = laid(out_like(t, out), last), where = laid(out_like(positions, out), last);
          const OnDevice dev_x(x, shifted == 0), dev_y(y, shifted == 1), dev_where(where, shifted == 2);
          cuda::max_pool(queue(), dev_x, args, dev_y, dev_where);
          dev_y.fetch();
          dev_where.fetch();
          check_close(y, want, 0, 0, "max_pool");
          check_close(where, want_where, 0, 0, "max_pool indices");
        }
      }
    }
  }
}

TEST_CASE("the gradient of maxima in channels_last, several channels a thread") {
  const PoolArgs args{.window = {.size = {3, 3, 1}, .stride = {2, 2, 1}, .padding = {1, 1, 0}}};
  const MemoryFormat last = MemoryFormat::channels_last;
  for (DType t : kFloating) {
    for (DType to : {t, t == DType::f64 ? t : DType::f32}) {
      for (DType positions : kPositions) {
        for (int64_t channels : {8, 24, 12}) {
          const Shape in{2, channels, 13, 10}, out{2, channels, 7, 5};
          const Buffer x = laid(uniform(t, in, 1), last), grad = laid(uniform(t, out, 2), last), y = laid(make(t, out), last),
                       where = laid(make(positions, out), last), want = laid(make(to, in), last);
          cpu().max_pool(x, args, y, where);
          cpu().max_pool_backward(grad, where, args, want);
          for (int shifted : {0, 1, 2, 3}) {  // the gradient, the indices, what is written or none of them
            const Buffer dx = laid(out_like(to, in), last);
            const OnDevice dev_grad(grad, shifted == 0), dev_where(where, shifted == 1), dev_dx(dx, shifted == 2);
            cuda::max_pool_backward(queue(), dev_grad, dev_where, args, dev_dx);
            dev_dx.fetch();
            check_close(dx, want, 0, 0, "max_pool_backward");
          }
        }
      }
    }
  }
}

TEST_CASE("maxima with dilation and windows of -inf, in three dimensions and beyond 32 bits") {
  const auto compare = [](const Buffer& x, const PoolArgs& args, const Shape& out) {
    const DType t = x.view.dtype;
    const Shape& in = x.view.shape;
    const Buffer y = out_like(t, out), want = make(t, out), where = out_like(DType::i64, out), want_where = make(DType::i64, out);
    cpu().max_pool(x, args, want, want_where);
    const OnDevice dev_x(x), dev_y(y), dev_where(where);
    cuda::max_pool(queue(), dev_x, args, dev_y, dev_where);
    dev_y.fetch();
    dev_where.fetch();
    check_close(y, want, 0, 0, "max_pool");
    check_close(where, want_where, 0, 0, "max_pool indices");
    // The windows of a dilated kernel have elements between their taps.
    const Buffer grad = uniform(t, out, 2), dx = out_like(t, in), want_dx = make(t, in);
    cpu().max_pool_backward(grad, want_where, args, want_dx);
    const OnDevice dev_grad(grad), dev_dx(dx);
    cuda::max_pool_backward(queue(), dev_grad, dev_where, args, dev_dx);
    dev_dx.fetch();
    check_close(dx, want_dx, 0, 0, "max_pool_backward");
  };
  const Buffer some = uniform(DType::f32, {1, 1, 7, 6}, 1), all = uniform(DType::f32, {1, 2, 4, 6, 8}, 1);
  for (int64_t i = 0; i < 42; ++i) set(some.view, i, i < 24 || i % 6 < 2 ? -INFINITY : some[i]);
  for (int64_t i = 0; i < all.numel(); ++i) set(all.view, i, -INFINITY);
  compare(some, {.window = {.size = {3, 2, 1}, .stride = {3, 2, 1}, .padding = {1, 1, 0}, .dilation = {2, 1, 1}}}, {1, 1, 2, 4});
  compare(all, {.window = {.dims = 3, .size = {2, 2, 2}, .stride = {2, 2, 2}}}, {1, 2, 2, 3, 4});  // each at the first tap
  compare(uniform(DType::f16, {2, 3, 7, 6}, 1),
          {.window = {.size = {2, 1, 1}, .stride = {1, 1, 1}, .padding = {1, 0, 0}, .dilation = {3, kFar, 1}}}, {2, 3, 6, 6});
}

TEST_CASE("means and their gradients") {
  for (DType t : kFloating) {
    for (const PoolCase& c : kPoolCases) {
      for (const auto& [format, channels] : kChannels) {
        const Shape in = planes(c.in, channels), out = planes(c.out, channels);
        const Buffer x = laid(uniform(t, in, 1), format), grad = laid(uniform(t, out, 2), format);
        const Buffer y = laid(out_like(t, out), format), want = laid(make(t, out), format), dx = laid(out_like(t, in), format),
                     want_dx = laid(make(t, in), format);
        cpu().avg_pool(x, c.args, want);
        cpu().avg_pool_backward(grad, c.args, want_dx);
        const OnDevice dev_x(x), dev_y(y), dev_grad(grad), dev_dx(dx);
        cuda::avg_pool(queue(), dev_x, c.args, dev_y);
        cuda::avg_pool_backward(queue(), dev_grad, c.args, dev_dx);
        dev_y.fetch();
        dev_dx.fetch();
        check_close(y, want, 2, 1e-6, "avg_pool");
        check_close(dx, want_dx, 2, 1e-6, "avg_pool_backward");
      }
    }
  }
}

TEST_CASE("the CPU's maxima and means are those of rows in channels_last") {
  for (DType t : kFloating) {
    for (const PoolCase& c : kPoolCases) {
      const Shape in = planes(c.in), out = planes(c.out);
      const Buffer x = uniform(t, in, 1), grad = uniform(t, out, 2), other_x = laid(make(t, in), MemoryFormat::channels_last),
                   other_grad = laid(make(t, out), MemoryFormat::channels_last);
      set(x.view, 0, std::nan(""));
      cpu().copy(x, other_x);
      cpu().copy(grad, other_grad);
      std::vector<Buffer> results[2];
      for (size_t k = 0; k < 2; ++k) {
        const auto made = [&](DType type, const Shape& shape) -> const Buffer& {
          return results[k].emplace_back(laid(make(type, shape), kFormats[k]));
        };
        results[k].reserve(5);
        const Buffer &from = k ? other_x : x, &g = k ? other_grad : grad;
        cpu().avg_pool(from, c.args, made(t, out));
        cpu().avg_pool_backward(g, c.args, made(t, in));
        if (c.args.divisor) continue;
        const Buffer &y = made(t, out), &where = made(DType::i64, out);
        cpu().max_pool(from, c.args, y, where);
        cpu().max_pool_backward(g, where, c.args, made(t, in));
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        const Buffer again = make(results[0][i].view.dtype, results[0][i].view.shape);
        cpu().copy(results[1][i], again);
        check_close(again, results[0][i], i < 2 ? 2 : 0, i < 2 ? 1e-6 : 0, "channels_last");
      }
    }
  }
}

TEST_CASE("the CPU's results do not depend on the threads") {
  const PoolArgs args{.window = {.size = {3, 3, 1}, .stride = {2, 2, 1}, .padding = {1, 1, 0}}};
  for (DType t : {DType::f32, DType::bf16}) {
    const Buffer x = uniform(t, {3, 5, 67, 71}, 1), grad = uniform(t, {3, 5, 34, 36}, 2);
    same_for_any_threads([&] {
      const Buffer y = make(t, {3, 5, 34, 36}), where = make(DType::i64, {3, 5, 34, 36}), mean = make(t, {3, 5, 34, 36});
      const Buffer dx = make(t, {3, 5, 67, 71}), dmean = make(t, {3, 5, 67, 71});
      cpu().max_pool(x, args, y, where);
      cpu().max_pool_backward(grad, where, args, dx);
      cpu().avg_pool(x, args, mean);
      cpu().avg_pool_backward(grad, args, dmean);
      return y.raw() + where.raw() + mean.raw() + dx.raw() + dmean.raw();
    });
  }
}
