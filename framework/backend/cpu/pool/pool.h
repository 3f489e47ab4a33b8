// SPDX-License-Identifier: Apache-2.0
// Helpers of both kinds of pooling: geometry, rows converted to the compute type, and planes to sum into. For channels_last a
// plane is an image with `lanes` channels per pixel, which are processed side by side.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/backend/cpu/elementwise/loops.h"

namespace halfstep::cpu::pooling {

// One spatial dimension of a pooling.
struct Axis {
  int64_t in, out, size, stride, padding, dilation;
  bool adaptive;

  int64_t first(int64_t o) const { return o * stride - padding; }  // first tap of the window; may be outside
  int64_t begin(int64_t o) const {
    if (adaptive) return o * in / out;
    return first(o) < 0 ? first(o) + (-first(o) + dilation - 1) / dilation * dilation : first(o);
  }
  int64_t end(int64_t o) const {  // one past the last tap inside
    return adaptive ? ((o + 1) * in + out - 1) / out : std::min(first(o) + (size - 1) * dilation + 1, in);
  }
  int64_t longest_window() const {
    int64_t most = 1;
    if (!adaptive) return std::min((size - 1) * dilation + 1, in);
    for (int64_t o = 0; o < out; ++o) most = std::max(most, end(o) - begin(o));
    return most;
  }
  // Returns how many elements the mean of output o counts; `pads`: including padding.
  int64_t counted_elements(int64_t o, bool pads) const {
    const int64_t n = pads && !adaptive ? std::min(first(o) + size, in + padding) - first(o) : end(o) - begin(o);
    return std::max<int64_t>(n, 1);
  }
  // Returns the outputs [lo, hi) whose tap k is inside.
  std::pair<int64_t, int64_t> outputs_of_tap(int64_t k) const {
    const int64_t offset = k * dilation - padding;  // input = o stride + offset
    const int64_t lo = offset < 0 ? (-offset + stride - 1) / stride : 0;
    const int64_t hi = in - 1 - offset < 0 ? 0 : std::min(out, (in - 1 - offset) / stride + 1);
    return {std::min(lo, hi), hi};
  }
};

struct Pooling {
  Axis z, y, x;
  int64_t planes, lanes;

  Pooling(const Shape& in, const Shape& out, const PoolArgs& args, MemoryFormat format) {
    const Window& w = args.window;
    Axis all[3];
    for (int d = 0; d < 3; ++d) {
      const int s = d - (3 - (in.size() - 2));  // the spatial dimension; x is the last one
      if (s < 0)
        all[d] = {1, 1, 1, 1, 0, 1, false};
      else
        all[d] = {in[s + 2],    out[s + 2], w.size[size_t(s)], w.stride[size_t(s)], w.padding[size_t(s)], w.dilation[size_t(s)],
                  args.adaptive};
    }
    z = all[0];
    y = all[1];
    x = all[2];
    lanes = format == MemoryFormat::channels_last ? in[1] : 1;
    planes = in[0] * in[1] / lanes;
  }
  int64_t in_plane() const { return z.in * y.in * x.in; }  // pixels
  int64_t rows() const { return planes * z.out * y.out; }
  // Returns whether one window covers each whole plane.
  bool covers_planes() const {
    const auto covered = [](const Axis& a) { return a.out == 1 && a.begin(0) == 0 && a.end(0) == a.in; };
    return covered(z) && covered(y) && covered(x);
  }
};

// Rows of planes as C: in place, or converted and kept while windows that slide over them need them.
template <class C>
class Rows {
 public:
  Rows(const TensorView& x, const Pooling& p)
      : view_(x), depth_(p.z.in), height_(p.y.in), width_(p.x.in * p.lanes), direct_(x.dtype == dtype_of<C>) {
    if (direct_) return;
    span_z_ = p.z.longest_window();
    span_y_ = p.y.longest_window();
    loaded_rows_.assign(size_t(span_z_ * span_y_), -1);
    memory_.resize(size_t(span_z_ * span_y_ * width_));
  }
  const C* row(int64_t plane, int64_t z, int64_t y) {
    const int64_t r = (plane * depth_ + z) * height_ + y;
    if (direct_) return view_.as<const C>() + r * width_;
    const int64_t slot = z % span_z_ * span_y_ + y % span_y_;
    C* const buffer = memory_.data() + slot * width_;
    if (loaded_rows_[size_t(slot)] != r) load<C>(view_.dtype, at(view_, r * width_), 1, buffer, width_);
    loaded_rows_[size_t(slot)] = r;
    return buffer;
  }

 private:
  const TensorView& view_;
  int64_t depth_, height_, width_, span_z_ = 1, span_y_ = 1;
  bool direct_;
  std::vector<int64_t> loaded_rows_;
  std::vector<C> memory_;
};

// Calls f(C{}): with double for Compute::wide, else with float.
template <class F>
void with_float_type(Compute c, const F& f) {
  if (c == Compute::wide)
    f(double{});
  else
    f(float{});
}

// Calls f(P{}) for the type of the maxima's indices.
template <class F>
void with_index_type(const TensorView& indices, const F& f) {
  switch (indices.dtype) {
    case DType::i16: return f(int16_t{});
    case DType::i32: return f(int32_t{});
    default: return f(int64_t{});
  }
}

// Calls f(plane, memory of C) for each plane of `out`, and stores the memory in the plane.
template <class C, class F>
void for_planes(const TensorView& out, int64_t planes, const F& f) {
  if (planes == 0) return;
  const int64_t n = out.numel() / planes;
  const bool direct = out.dtype == dtype_of<C>;
  parallel_for(planes, 1, out.numel(), [&](int64_t begin, int64_t end) {
    std::vector<C> memory(direct ? 0 : size_t(n));
    for (int64_t plane = begin; plane < end; ++plane) {
      C* const values = direct ? out.as<C>() + plane * n : memory.data();
      std::fill_n(values, n, C(0));
      f(plane, values);
      if (!direct) store<C>(out.dtype, values, at(out, plane * n), 1, n);
    }
  });
}

// Returns the first column inside, for each window along a row.
template <class I>
std::vector<I> starts_of(const Axis& x) {
  std::vector<I> out(static_cast<size_t>(x.out));
  for (int64_t o = 0; o < x.out; ++o) out[size_t(o)] = I(std::min(x.begin(o), x.in - 1));
  return out;
}

// Stores n indices of maxima at element `to` of the tensor of indices.
template <class I>
void put_positions(const I* where, int64_t n, const TensorView& indices, int64_t to) {
  with_index_type(indices, [&]<class P>(P) { std::transform(where, where + n, indices.as<P>() + to, [](I i) { return P(i); }); });
}

// Computes maxima of windows of several rows that overlap along a row. Returns false and does nothing for others.
bool max_pool_overlapping(const TensorView& x, const Pooling& p, const TensorView& out, const TensorView& indices);
// Computes maxima of windows of two by two. Returns false and does nothing for others.
bool max_pool_squares(const TensorView& x, const Pooling& p, const TensorView& out, const TensorView& indices);

}  // namespace halfstep::cpu::pooling
