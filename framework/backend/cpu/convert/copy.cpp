// SPDX-License-Identifier: Apache-2.0
// Copies, casts and fills.
#include <algorithm>
#include <cstring>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/kernels.h"

namespace halfstep::cpu {
namespace {

// Calls f with an unsigned integer of the element's size, for copies that keep every bit.
template <class F>
void with_bits(DType t, F&& f) {
  switch (size_of(t)) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    default: return f(uint64_t{});
  }
}

// A plane with a source dense along `column` and a target dense along the last dimension.
struct Plane {
  int column = -1;  // -1: there is no such plane
  explicit operator bool() const { return column >= 0; }
};

constexpr int64_t kLeastExtent = 8;  // of a plane for which tiles pay

Plane find_plane(const Space& s) {
  const int last = s.rank - 1;
  if (s.rank < 2 || s.strides[1][last] != 1 || s.strides[0][last] == 1 || s.strides[0][last] == 0 || s.shape[last] < kLeastExtent)
    return {};
  for (int d = 0; d < last; ++d) {
    if (s.strides[0][d] == 1 && s.shape[d] >= kLeastExtent) return {d};
  }
  return {};
}

// Copies through square tiles, so that both sides are accessed in whole cache lines, whatever their strides.
template <class T>
void transpose(const Space& s, int column, const T* src, T* dst) {
  constexpr int64_t kTile = 32;
  const int last = s.rank - 1;
  const int64_t rows = s.shape[column], columns = s.shape[last];
  const int64_t src_step = s.strides[0][last], dst_step = s.strides[1][column];
  const int64_t strips = (rows + kTile - 1) / kTile;
  const int64_t planes = s.numel / (rows * columns);
  parallel_for(planes * strips, 1, s.numel, [&](int64_t begin, int64_t end) {
    alignas(64) T tile[kTile][kTile];
    for (int64_t task = begin; task < end; ++task) {
      int64_t rest = task / strips, src_at = 0, dst_at = 0;
      for (int d = last - 1; d >= 0; --d) {
        if (d == column) continue;
        src_at += rest % s.shape[d] * s.strides[0][d];
        dst_at += rest % s.shape[d] * s.strides[1][d];
        rest /= s.shape[d];
      }
      const int64_t r0 = task % strips * kTile, r1 = std::min(rows, r0 + kTile);
      for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
        const int64_t c1 = std::min(columns, c0 + kTile);
        for (int64_t c = c0; c < c1; ++c) std::copy_n(src + src_at + c * src_step + r0, r1 - r0, tile[c - c0]);
        for (int64_t r = r0; r < r1; ++r) {
          T* to = dst + dst_at + r * dst_step + c0;
          for (int64_t c = 0; c < c1 - c0; ++c) to[c] = tile[c][r - r0];
        }
      }
    }
  });
}

// Copies short rows in two dimensions at a time, because stepping from row to row would cost too much.
template <class T>
void copy_rows(const Space& s, const T* src, T* dst) {
  const int last = s.rank - 1;
  const int64_t n = s.shape[last], rows = s.shape[last - 1], from_step = s.strides[0][last - 1], to_step = s.strides[1][last - 1];
  const int64_t grain = std::max<int64_t>(1, kBlock / (n * rows));
  parallel_for(s.numel / (n * rows), grain, s.numel, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const T* in = src + Cursor(s, 0, plane * n * rows).offset();
      T* out = dst + Cursor(s, 1, plane * n * rows).offset();
      for (int64_t r = 0; r < rows; ++r, in += from_step, out += to_step) std::memcpy(out, in, size_t(n) * sizeof(T));
    }
  });
}

template <class T>
void copy_elements(const Space& s, const T* src, T* dst) {
  const int last = s.rank - 1;
  if (s.rank > 2 && s.strides[0][last] == 1 && s.strides[1][last] == 1 && s.shape[last] < kBlock) return copy_rows(s, src, dst);
  if (const Plane plane = find_plane(s)) return transpose(s, plane.column, src, dst);
  parallel_for(s.numel, kBlock, s.numel, [&](int64_t begin, int64_t end) {
    Cursor from(s, 0, begin), to(s, 1, begin);
    for (int64_t i = begin; i < end;) {
      const int64_t n = std::min(end - i, from.row_left());
      const T* in = src + from.offset();
      T* out = dst + to.offset();
      const int64_t in_stride = from.stride(), out_stride = to.stride();
      if (in_stride == 1 && out_stride == 1) {
        std::memcpy(out, in, size_t(n) * sizeof(T));
      } else if (in_stride == 1 && out_stride == -1) {
        for (int64_t k = 0; k < n; ++k) out[-k] = in[k];
      } else {
        for (int64_t k = 0; k < n; ++k) out[k * out_stride] = in[k * in_stride];
      }
      from.advance(n);
      to.advance(n);
      i += n;
    }
  });
}

template <class C>
void convert(const Space& s, const TensorView& src, const TensorView& dst) {
  parallel_for(s.numel, kBlock, s.numel, [&](int64_t begin, int64_t end) {
    alignas(64) C buffer[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t n = std::min(kBlock, end - i);
      const bool direct = dst.dtype == dtype_of<C> && s.dense(1);
      C* target = direct ? dst.as<C>() + i : buffer;
      const C* values = fetch<C>(s, 0, src, i, n, target);
      if (values != target || !direct) put<C>(s, 1, dst, i, n, values);
    }
  });
}

}  // namespace

void copy_all(std::span<const TensorView> from, std::span<const TensorView> to, const float* flag) {
  if (flag && *flag == 0) return;
  for (size_t i = 0; i < to.size(); ++i) copy(from[i], to[i]);
}

void copy(const TensorView& src, const TensorView& dst) {
  const Space s(dst.shape, {&src.strides, &dst.strides});
  if (s.numel == 0) return;
  if (src.dtype == dst.dtype) {
    return with_bits(src.dtype, [&](auto bits) {
      using T = decltype(bits);
      copy_elements<T>(s, src.as<const T>(), dst.as<T>());
    });
  }
  // Small integers and bools are exact as floats.
  const bool small = size_of(src.dtype) <= 2 && !is_floating(src.dtype) && is_floating(dst.dtype);
  with_compute(compute_of(small ? dst.dtype : src.dtype), [&](auto tag) { convert<decltype(tag)>(s, src, dst); });
}

void fill(const TensorView& dst, double value) {
  const Space s(dst.shape, {&dst.strides});
  if (s.numel == 0) return;
  uint64_t pattern = 0;
  store_one<double>(dst.dtype, value, &pattern);
  with_bits(dst.dtype, [&](auto bits) {
    using T = decltype(bits);
    T element;
    std::memcpy(&element, &pattern, sizeof(T));
    parallel_for(s.numel, kBlock, s.numel, [&](int64_t begin, int64_t end) {
      Cursor to(s, 0, begin);
      for (int64_t i = begin; i < end;) {
        const int64_t n = std::min(end - i, to.row_left());
        T* out = dst.as<T>() + to.offset();
        const int64_t stride = to.stride();
        if (stride == 1) {
          std::fill_n(out, n, element);
        } else {
          for (int64_t k = 0; k < n; ++k) out[k * stride] = element;
        }
        to.advance(n);
        i += n;
      }
    });
  });
}

void arange(const TensorView& dst, double start, double step) {
  const int64_t n = dst.numel();
  const int64_t stride = dst.shape.empty() ? 1 : dst.strides[0];
  parallel_for(n, kBlock, n, [&](int64_t begin, int64_t end) {
    double buffer[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t count = std::min(kBlock, end - i);
      for (int64_t k = 0; k < count; ++k) buffer[k] = start + double(i + k) * step;
      store<double>(dst.dtype, buffer, at(dst, i * stride), stride, count);
    }
  });
}

}  // namespace halfstep::cpu
