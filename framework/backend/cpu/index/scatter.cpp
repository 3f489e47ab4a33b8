// SPDX-License-Identifier: Apache-2.0
// Scatters along one dimension: out[a, index[a, i, b], b] = src[a, i, b], or += in scatter_add. `index` has the shape of the
// source, or is one-dimensional and then chooses whole slices. Lines along dim are independent; one thread processes each in order,
// so that equal indices take effect in the order of the source.
#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/index/broadcast_index.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/math/scalar.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kWideSlice = 16;  // elements of a slice from which it pays to sort slices by their target
constexpr int64_t kFewPlaces = 64;  // with fewer targets, slices are cut into kSmallBlock elements, so that more threads have work
constexpr int64_t kSmallBlock = 128;  // elements
constexpr int64_t kFewestLines = 16;  // of one thread

// Lines side by side: their number, the offsets of the first one in out, index and src, and the strides from one to the next.
struct LineGroup {
  int64_t count;
  int64_t out, index, src;
  int64_t out_stride, index_stride, src_stride;
};

// The lines along dim: their starts in out, index and src, and the steps along them.
struct Lines {
  Space space;
  int64_t length, out_step, index_step, src_step;
  const int64_t* index;

  Lines(const Strides& out, int dim, const TensorView& index_view, const TensorView& src)
      : space(without(src.shape, dim), {&out, &index_view.strides, &src.strides}),
        length(src.shape.empty() ? 1 : src.shape[dim]),
        out_step(src.shape.empty() ? 0 : out[dim]),
        index_step(src.shape.empty() ? 0 : index_view.strides[dim]),
        src_step(src.shape.empty() ? 0 : src.strides[dim]),
        index(index_view.as<const int64_t>()) {}

  // Calls f(lines) for all lines, in groups that are side by side.
  template <class F>
  void for_each(const F& f) const {
    parallel_for(space.numel, kFewestLines, space.numel * length, [&](int64_t begin, int64_t end) {
      Cursor out_cursor(space, 0, begin), index_cursor(space, 1, begin), src_cursor(space, 2, begin);
      for (int64_t done = begin; done < end;) {
        const int64_t n = std::min({end - done, out_cursor.row_left(), kBlock});
        f(LineGroup{n, out_cursor.offset(), index_cursor.offset(), src_cursor.offset(), out_cursor.stride(), index_cursor.stride(),
                    src_cursor.stride()});
        out_cursor.advance(n);
        index_cursor.advance(n);
        src_cursor.advance(n);
        done += n;
      }
    });
  }

  // Returns whether to process one line at a time, because it is dense in src, instead of one entry of all lines at a time.
  bool one_by_one(const LineGroup& group) const { return group.count == 1 || (src_step == 1 && group.src_stride != 1); }
  bool dense() const { return out_step == 1 && index_step == 1 && src_step == 1; }

 private:
  static Shape without(Shape shape, int dim) {
    if (!shape.empty()) shape[dim] = 1;
    return shape;
  }
};

// Add or store the entries of a line whose steps are all 1.
template <class T>
void add_line(T* to, const int64_t* index, const T* from, int64_t n) {
#pragma GCC unroll 8
  for (int64_t k = 0; k < n; ++k) to[index[k]] = m::add(to[index[k]], from[k]);
}
template <class T>
void place_line(T* to, const int64_t* index, const T* from, int64_t n) {
#pragma GCC unroll 8
  for (int64_t k = 0; k < n; ++k) to[index[k]] = from[k];
}

template <class C>
void add_lines(C* sums, const Lines& lines, const TensorView& src) {
  lines.for_each([&](const LineGroup& group) {
    alignas(64) C buffer[kBlock];
    if (lines.one_by_one(group)) {
      for (int64_t c = 0; c < group.count; ++c) {
        C* target = sums + group.out + c * group.out_stride;
        const int64_t* chosen = lines.index + group.index + c * group.index_stride;
        const int64_t line = group.src + c * group.src_stride;
        if (lines.dense() && src.dtype == dtype_of<C>) {
          add_line(target, chosen, src.as<const C>() + line, lines.length);
          continue;
        }
        for (int64_t k = 0; k < lines.length; k += kBlock) {
          const int64_t part = std::min(kBlock, lines.length - k);
          load<C>(src.dtype, at(src, line + k * lines.src_step), lines.src_step, buffer, part);
          for (int64_t e = 0; e < part; ++e) {
            C& sum = target[chosen[(k + e) * lines.index_step] * lines.out_step];
            sum = m::add(sum, buffer[e]);
          }
        }
      }
      return;
    }
    for (int64_t k = 0; k < lines.length; ++k) {
      load<C>(src.dtype, at(src, group.src + k * lines.src_step), group.src_stride, buffer, group.count);
      const int64_t* chosen = lines.index + group.index + k * lines.index_step;
      C* target = sums + group.out;
      for (int64_t c = 0; c < group.count; ++c) {
        C& sum = target[c * group.out_stride + chosen[c * group.index_stride] * lines.out_step];
        sum = m::add(sum, buffer[c]);
      }
    }
  });
}

template <class T>
void place_lines(T* out, const Lines& lines, const T* src) {
  lines.for_each([&](const LineGroup& group) {
    T* target = out + group.out;
    const T* source = src + group.src;
    const int64_t* chosen = lines.index + group.index;
    const int64_t n = group.count, out_stride = group.out_stride, index_stride = group.index_stride, src_stride = group.src_stride;
    if (lines.one_by_one(group)) {
      for (int64_t c = 0; c < n; ++c) {
        if (lines.dense()) {
          place_line(target + c * out_stride, chosen + c * index_stride, source + c * src_stride, lines.length);
          continue;
        }
        for (int64_t k = 0; k < lines.length; ++k)
          target[c * out_stride + chosen[c * index_stride + k * lines.index_step] * lines.out_step] =
              source[c * src_stride + k * lines.src_step];
      }
      return;
    }
    for (int64_t k = 0; k < lines.length; ++k) {
      const T* row = source + k * lines.src_step;
      const int64_t* here = chosen + k * lines.index_step;
      if (index_stride == 0 && out_stride == 1 && src_stride == 1) {
        std::memcpy(target + *here * lines.out_step, row, size_t(n) * sizeof(T));
      } else {
        for (int64_t c = 0; c < n; ++c) target[c * out_stride + here[c * index_stride] * lines.out_step] = row[c * src_stride];
      }
    }
  });
}

// The entries of an index by value: those of values[g] are order[start[g]], ..., in ascending order.
struct Groups {
  std::vector<int64_t> values, start, order;

  Groups(const TensorView& index, int64_t size) : order(size_t(index.numel())) {
    const int64_t n = index.numel(), step = index.shape.empty() ? 0 : index.strides[0];
    const int64_t* entries = index.as<const int64_t>();
    std::vector<int64_t> place(size_t(size), 0);  // of each value: the number of its entries, then the next place in `order`
    for (int64_t i = 0; i < n; ++i) ++place[size_t(entries[i * step])];
    int64_t at = 0;
    for (int64_t value = 0; value < size; ++value) {
      const int64_t count = place[size_t(value)];
      if (count == 0) continue;
      values.push_back(value);
      start.push_back(at);
      place[size_t(value)] = at;
      at += count;
    }
    start.push_back(at);
    for (int64_t i = 0; i < n; ++i) order[size_t(place[size_t(entries[i * step])]++)] = i;
  }
};

template <class C>
HS_CLONES void add_to(C* sum, const C* x, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) sum[i] = m::add(sum[i], x[i]);
}

// Adds up the slices for each target before the one rounding; targets share nothing.
template <class C>
void add_slices(const TensorView& out, int dim, const TensorView& index, const TensorView& src) {
  const Groups groups(index, out.shape[dim]);
  Shape slice = src.shape;
  slice[dim] = 1;
  const Space s(slice, {&out.strides, &src.strides});
  const int64_t places = int64_t(groups.values.size()), block = places < kFewPlaces ? kSmallBlock : kBlock,
                blocks = (s.numel + block - 1) / block;
  const auto shifted = [](TensorView v, int64_t by) {
    v.data = at(v, by);
    return v;
  };
  parallel_for(places * blocks, 1, src.numel(), [&](int64_t first, int64_t last) {
    alignas(64) C sums[kBlock], values[kBlock];
    for (int64_t task = first; task < last; ++task) {
      const size_t group = size_t(task / blocks);
      const int64_t begin = task % blocks * block, n = std::min(block, s.numel - begin);
      const TensorView to = shifted(out, groups.values[group] * out.strides[dim]);
      C* sum = const_cast<C*>(fetch<C>(s, 0, to, begin, n, sums));
      for (int64_t e = groups.start[group]; e < groups.start[group + 1]; ++e) {
        const TensorView from = shifted(src, groups.order[size_t(e)] * src.strides[dim]);
        add_to(sum, fetch<C>(s, 1, from, begin, n, values), n);
      }
      if (sum == sums) put<C>(s, 0, to, begin, n, sum);
    }
  });
}

}  // namespace

void scatter_add(const TensorView& out, int dim, const TensorView& index, const TensorView& src) {
  if (src.numel() == 0) return;
  const TensorView chosen = broadcast_index(index, src.shape, dim);
  const Lines lines(out.strides, dim, chosen, src);
  with_compute(compute_of(out.dtype), [&](auto tag) {
    using C = decltype(tag);
    if (out.dtype == dtype_of<C>) return add_lines(out.as<C>(), lines, src);
    // Sums all terms of an element before the one rounding.
    int64_t span = 1;
    for (int d = 0; d < out.shape.size(); ++d) span += (out.shape[d] - 1) * out.strides[d];
    std::vector<C> sums(static_cast<size_t>(span));
    load<C>(out.dtype, out.data, 1, sums.data(), span);
    add_lines(sums.data(), lines, src);
    store<C>(out.dtype, sums.data(), out.data, 1, span);
  });
}

void index_add(const TensorView& out, int dim, const TensorView& index, const TensorView& src) {
  const int64_t n = src.numel();
  if (n == 0) return;
  if (src.shape.empty() || n / src.shape[dim] < kWideSlice) return scatter_add(out, dim, index, src);
  with_compute(compute_of(out.dtype), [&](auto tag) { add_slices<decltype(tag)>(out, dim, index, src); });
}

void scatter(const TensorView& out, int dim, const TensorView& index, const TensorView& src) {
  if (src.numel() == 0) return;
  const TensorView chosen = broadcast_index(index, src.shape, dim);
  const Lines lines(out.strides, dim, chosen, src);
  switch (size_of(out.dtype)) {
    case 1: return place_lines(out.as<uint8_t>(), lines, src.as<const uint8_t>());
    case 2: return place_lines(out.as<uint16_t>(), lines, src.as<const uint16_t>());
    case 4: return place_lines(out.as<uint32_t>(), lines, src.as<const uint32_t>());
    default: return place_lines(out.as<uint64_t>(), lines, src.as<const uint64_t>());
  }
}

void index_copy(const TensorView& out, int dim, const TensorView& index, const TensorView& src) { scatter(out, dim, index, src); }

}  // namespace halfstep::cpu
