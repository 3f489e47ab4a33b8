// SPDX-License-Identifier: Apache-2.0
// Copies windows into columns, and adds columns back. x [N, C, in...], K taps per window, P output positions, columns [N, C K, P]:
//   unfold  columns[n, c K + k, o] = x[n, c, o stride - padding + k dilation], 0 outside of x
//   fold    x[n, c, i] = sum of columns[n, c K + k, o] over all k and o with o stride - padding + k dilation = i
// Both go along a row of positions, which is contiguous in the columns.
#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/backend/cpu/convert/convert.h"
#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/unfold_conv.h"

namespace halfstep::cpu {
namespace {

// The positions [begin, end) out of `count` at which a tap, at position * stride + offset, lies inside [0, size).
struct InsidePositions {
  int64_t begin, end;
  InsidePositions(int64_t count, int64_t size, int64_t stride, int64_t offset) {
    const auto first_from = [&](int64_t least) {
      return least <= offset ? 0 : std::min((least - offset + stride - 1) / stride, count);
    };
    begin = first_from(0);
    end = std::max(begin, first_from(size));
  }
};

// The pixels under one tap: for each row of positions, its start in the plane (-1: in the padding).
class Tap {
 public:
  Tap(const WindowGeometry& g, int64_t tap)
      : g_(g),
        offset_{tap / (g.size[1] * g.size[2]) * g.dilation[0] - g.padding[0],
                tap / g.size[2] % g.size[1] * g.dilation[1] - g.padding[1], tap % g.size[2] * g.dilation[2] - g.padding[2]},
        inside(g.out[2], g.in[2], g.stride[2], offset_[2]) {}
  // Calls f(first position of the row, first pixel of its row in the plane or -1).
  template <class F>
  void each_row(const F& f) const {
    int64_t position = 0;
    for (int64_t a = 0; a < g_.out[0]; ++a) {
      const int64_t i = a * g_.stride[0] + offset_[0];
      for (int64_t b = 0; b < g_.out[1]; ++b, position += g_.out[2]) {
        const int64_t j = b * g_.stride[1] + offset_[1];
        const bool outside = i < 0 || i >= g_.in[0] || j < 0 || j >= g_.in[1];
        f(position, outside ? -1 : (i * g_.in[1] + j) * g_.in[2]);
      }
    }
  }
  int64_t first_pixel() const { return inside.begin * g_.stride[2] + offset_[2]; }  // at position inside.begin, within its row

 private:
  const WindowGeometry& g_;
  Spatial offset_;

 public:
  const InsidePositions inside;
};

template <class Bits>
void unfold_row(const WindowGeometry& g, const Bits* plane, const Tap& tap, Bits* to) {
  const InsidePositions in = tap.inside;
  const int64_t stride = g.stride[2], count = in.end - in.begin, first = tap.first_pixel();
  tap.each_row([&](int64_t position, int64_t row) {
    Bits* out = to + position;
    if (row < 0 || count == 0) {
      std::memset(out, 0, size_t(g.out[2]) * sizeof(Bits));
      return;
    }
    std::fill(out, out + in.begin, Bits(0));
    std::fill(out + in.end, out + g.out[2], Bits(0));
    const Bits* from = plane + row + first;
    if (stride == 1)
      std::memcpy(out + in.begin, from, size_t(count) * sizeof(Bits));
    else
      for (int64_t k = 0; k < count; ++k) out[in.begin + k] = from[k * stride];
  });
}

template <class Bits>
void unfold_as(const TensorView& x, const WindowGeometry& g, const TensorView& columns) {
  const int64_t planes = x.shape[0] * x.shape[1], positions = g.positions(), rows = planes * g.taps();
  parallel_for(rows, 1, rows * positions, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      unfold_row(g, x.as<const Bits>() + r / g.taps() * g.pixels(), Tap(g, r % g.taps()), columns.as<Bits>() + r * positions);
  });
}

HS_CLONES void add_strided(float* sum, int64_t stride, const float* x, int64_t n) {
  if (stride == 1) {
    HS_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
  } else {
    for (int64_t i = 0; i < n; ++i) sum[i * stride] += x[i];
  }
}
HS_CLONES void add_strided(double* sum, int64_t stride, const double* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i * stride] += x[i];
}

// Adds up each plane tap after tap, independently of the threads.
template <class C>
void fold_as(const TensorView& columns, const WindowGeometry& g, const TensorView& out) {
  const int64_t planes = out.shape[0] * out.shape[1], positions = g.positions(), pixels = g.pixels(), taps = g.taps();
  const bool direct = columns.dtype == dtype_of<C>, own_sum = out.dtype != dtype_of<C>;
  parallel_for(planes, 1, planes * taps * positions, [&](int64_t begin, int64_t end) {
    std::vector<C> buffer(direct ? 0 : size_t(positions)), sums(own_sum ? size_t(pixels) : 0);
    for (int64_t p = begin; p < end; ++p) {
      C* sum = own_sum ? sums.data() : out.as<C>() + p * pixels;
      std::fill(sum, sum + pixels, C(0));
      for (int64_t t = 0; t < taps; ++t) {
        const Tap tap(g, t);
        const int64_t count = tap.inside.end - tap.inside.begin, first = tap.first_pixel();
        if (count == 0) continue;
        const C* row_of_columns = buffer.data();
        if (direct)
          row_of_columns = columns.as<const C>() + (p * taps + t) * positions;
        else
          load<C>(columns.dtype, at(columns, (p * taps + t) * positions), 1, buffer.data(), positions);
        tap.each_row([&](int64_t position, int64_t row) {
          if (row >= 0) add_strided(sum + row + first, g.stride[2], row_of_columns + position + tap.inside.begin, count);
        });
      }
      if (own_sum) store<C>(out.dtype, sum, at(out, p * pixels), 1, pixels);
    }
  });
}

}  // namespace

void unfold(const TensorView& x, const Window& window, const Spatial& positions, const TensorView& columns) {
  if (columns.numel() == 0) return;
  const WindowGeometry g(window, spatial_sizes(x, window.dims), positions);
  switch (size_of(x.dtype)) {
    case 2: return unfold_as<uint16_t>(x, g, columns);
    case 4: return unfold_as<uint32_t>(x, g, columns);
    default: return unfold_as<uint64_t>(x, g, columns);
  }
}

void fold(const TensorView& columns, const Window& window, const Spatial& positions, const TensorView& out) {
  if (out.numel() == 0) return;
  const WindowGeometry g(window, spatial_sizes(out, window.dims), positions);
  out.dtype == DType::f64 ? fold_as<double>(columns, g, out) : fold_as<float>(columns, g, out);
}

}  // namespace halfstep::cpu
