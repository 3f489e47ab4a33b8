// Gathering and scattering along one dimension. `index` has the shape of the output (gather) or the source (scatter_add), or is
// one-dimensional and then chooses whole slices; a stride of 0 in it does the same.
#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/loops.h"

namespace halfstep::cpu {
namespace {

// The index with the given shape.
TensorView spread(const TensorView& index, const Shape& shape, int dim) {
  if (index.shape.size() == shape.size()) return index;
  TensorView v = index;
  v.shape = shape;
  v.strides = Dims::filled(shape.size(), 0);
  if (!shape.empty() && !index.shape.empty()) v.strides[dim] = index.strides[0];
  return v;
}

template <class T>
void gather_bits(const TensorView& x, int dim, const TensorView& index, const TensorView& out) {
  Strides others = x.strides;  // x without its way along dim
  if (!others.empty()) others[dim] = 0;
  const int64_t step = x.shape.empty() ? 0 : x.strides[dim];
  const Space s(out.shape, {&out.strides, &index.strides, &others});
  const int64_t* indices = index.as<const int64_t>();
  const T* in = x.as<const T>();
  T* to = out.as<T>();
  parallel_for(s.numel, kBlock, s.numel < kParallel, [&](int64_t begin, int64_t end) {
    Cursor o(s, 0, begin), i(s, 1, begin), from(s, 2, begin);
    for (int64_t done = begin; done < end;) {
      const int64_t n = std::min(end - done, o.row_left());
      const int64_t os = o.stride(), is = i.stride(), fs = from.stride();
      if (is == 0 && fs == 1 && os == 1) {
        std::memcpy(to + o.offset(), in + from.offset() + indices[i.offset()] * step, size_t(n) * sizeof(T));
      } else {
        for (int64_t k = 0; k < n; ++k) to[o.offset() + k * os] = in[from.offset() + k * fs + indices[i.offset() + k * is] * step];
      }
      o.advance(n);
      i.advance(n);
      from.advance(n);
      done += n;
    }
  });
}

// Lines along dim are independent of each other, and each is walked in order by one thread: equal indices add up in one order.
template <class C>
void scatter_lines(C* sums, const Strides& out_strides, int dim, const TensorView& index, const TensorView& src) {
  Shape lines = src.shape;
  const int64_t length = lines.empty() ? 1 : lines[dim];
  if (!lines.empty()) lines[dim] = 1;
  const Space s(lines, {&out_strides, &index.strides, &src.strides});
  const int64_t out_step = lines.empty() ? 0 : out_strides[dim], index_step = lines.empty() ? 0 : index.strides[dim];
  const int64_t src_step = lines.empty() ? 0 : src.strides[dim];
  const int64_t* indices = index.as<const int64_t>();
  parallel_for(s.numel, 64, s.numel * length < kParallel, [&](int64_t begin, int64_t end) {
    alignas(64) C buffer[kBlock];
    Cursor o(s, 0, begin), i(s, 1, begin), from(s, 2, begin);
    for (int64_t done = begin; done < end;) {
      const int64_t n = std::min({end - done, o.row_left(), kBlock});
      const int64_t os = o.stride(), is = i.stride(), fs = from.stride();
      for (int64_t k = 0; k < length; ++k) {
        load<C>(src.dtype, at(src, from.offset() + k * src_step), fs, buffer, n);
        const int64_t* chosen = indices + i.offset() + k * index_step;
        C* target = sums + o.offset();
        for (int64_t c = 0; c < n; ++c) target[c * os + chosen[c * is] * out_step] += buffer[c];
      }
      o.advance(n);
      i.advance(n);
      from.advance(n);
      done += n;
    }
  });
}

}  // namespace

int64_t check_indices(const TensorView& index, int64_t size) {
  const Space s(index.shape, {&index.strides});
  if (s.numel == 0) return -1;
  Cursor cursor(s, 0, 0);
  for (int64_t i = 0; i < s.numel; ++i, cursor.advance(1)) {
    const int64_t v = index.as<const int64_t>()[cursor.offset()];
    if (v < 0 || v >= size) return i;
  }
  return -1;
}

void gather(const TensorView& x, int dim, const TensorView& index, const TensorView& out) {
  if (out.numel() == 0) return;
  const TensorView chosen = spread(index, out.shape, dim);
  switch (size_of(x.dtype)) {
    case 1: return gather_bits<uint8_t>(x, dim, chosen, out);
    case 2: return gather_bits<uint16_t>(x, dim, chosen, out);
    case 4: return gather_bits<uint32_t>(x, dim, chosen, out);
    default: return gather_bits<uint64_t>(x, dim, chosen, out);
  }
}

void scatter_add(const TensorView& out, int dim, const TensorView& index, const TensorView& src) {
  if (src.numel() == 0) return;
  const TensorView chosen = spread(index, src.shape, dim);
  with_compute(compute_of(out.dtype), [&](auto tag) {
    using C = decltype(tag);
    if (out.dtype == dtype_of<C>) return scatter_lines(out.as<C>(), out.strides, dim, chosen, src);
    // Many terms may land on one element: they are summed before the one rounding.
    std::vector<C> sums(size_t(out.numel()));
    load<C>(out.dtype, out.data, 1, sums.data(), out.numel());
    scatter_lines(sums.data(), out.strides, dim, chosen, src);
    store<C>(out.dtype, sums.data(), out.data, 1, out.numel());
  });
}

}  // namespace halfstep::cpu
