// SPDX-License-Identifier: Apache-2.0
// Gathers along one dimension: out[a, i, b] = x[a, index[a, i, b], b]. `index` has the shape of the output, or is one-dimensional
// and then chooses whole slices; a stride of 0 in it does the same.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "framework/backend/cpu/elementwise/loops.h"
#include "framework/backend/cpu/index/broadcast_index.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/base/check.h"

namespace halfstep::cpu {
namespace {

HS_CLONES bool any_outside(const int64_t* v, int64_t stride, int64_t n, uint64_t size) {
  bool is_any_outside = false;
  if (stride == 1) {
    for (int64_t k = 0; k < n; ++k) is_any_outside |= uint64_t(v[k]) >= size;
  } else {
    for (int64_t k = 0; k < n; ++k) is_any_outside |= uint64_t(v[k * stride]) >= size;
  }
  return is_any_outside;
}

template <class T>
HS_CLONES void gather_line(const T* line, const int64_t* index, T* to, int64_t n) {
#pragma GCC unroll 8
  for (int64_t k = 0; k < n; ++k) to[k] = line[index[k]];
}

constexpr int64_t kPrefetchBytes = 4096;  // of a row

// Keeps the first of the places at which threads find a bad index.
class FirstBad {
 public:
  explicit FirstBad(int64_t end) : end_(end), first_(end) {}
  // Notes the first bad one of n indices, if there is one, and returns whether there is. v[0] is at `place`.
  bool find(const int64_t* v, int64_t stride, int64_t n, uint64_t size, int64_t place) {
    if (!any_outside(v, stride, n, size)) return false;
    for (; uint64_t(*v) < size; v += stride) ++place;
    for (int64_t current = first_; place < current && !first_.compare_exchange_weak(current, place);) {}  // first_ = the least
    return true;
  }
  bool is_before(int64_t place) const { return first_ < place; }
  int64_t place() const { return first_ < end_ ? first_.load() : -1; }  // -1: none

 private:
  int64_t end_;
  std::atomic<int64_t> first_;
};

// Checks the indices of a row while they are in the cache, and reads no element at a bad one. Throws IndexError for the first.
template <class T>
void gather_bits(const TensorView& x, int dim, const TensorView& index, const TensorView& out) {
  const uint64_t size = x.shape.empty() ? 1 : uint64_t(x.shape[dim]);
  Strides others = x.strides;  // strides of x except along dim
  if (!others.empty()) others[dim] = 0;
  const int64_t step = x.shape.empty() ? 0 : x.strides[dim];
  const Space s(out.shape, {&out.strides, &index.strides, &others});
  const int64_t* indices = index.as<const int64_t>();
  const T* in = x.as<const T>();
  T* to = out.as<T>();
  FirstBad bad(s.numel);
  parallel_for(s.numel, kBlock, s.numel, [&](int64_t begin, int64_t end) {
    Cursor out_cursor(s, 0, begin), index_cursor(s, 1, begin), x_cursor(s, 2, begin);
    for (int64_t done = begin; done < end;) {
      const int64_t index_stride = index_cursor.stride();
      const int64_t n = std::min({end - done, out_cursor.row_left(), index_stride != 0 ? kBlock : end});
      const int64_t out_stride = out_cursor.stride(), x_stride = x_cursor.stride();
      T* target = to + out_cursor.offset();
      const T* source = in + x_cursor.offset();
      const int64_t* chosen = indices + index_cursor.offset();
      if (bad.find(chosen, index_stride, n, size, done)) return;
      if (index_stride == 0 && x_stride == 1 && out_stride == 1) {
        if (done + n < end) {  // prefetches the next row, which may be anywhere, while copying this one
          Cursor next_index = index_cursor, next_x = x_cursor;
          next_index.advance(n);
          next_x.advance(n);
          const int64_t row = indices[next_index.offset()], bytes = uint64_t(row) < size ? kPrefetchBytes : 0;
          const T* const next = in + next_x.offset() + (bytes ? row * step : 0);
          for (int64_t k = 0; k < std::min(n, bytes / int64_t(sizeof(T))); k += kCacheLine / int64_t(sizeof(T)))
            __builtin_prefetch(next + k);
        }
        std::memcpy(target, source + *chosen * step, size_t(n) * sizeof(T));
      } else if (index_stride == 1 && x_stride == 0 && out_stride == 1 && step == 1) {
        gather_line(source, chosen, target, n);
      } else {
        for (int64_t k = 0; k < n; ++k) target[k * out_stride] = source[k * x_stride + chosen[k * index_stride] * step];
      }
      out_cursor.advance(n);
      index_cursor.advance(n);
      x_cursor.advance(n);
      done += n;
    }
  });
  if (const int64_t place = bad.place(); place >= 0)
    fail<IndexError>("gather", "index ", indices[Cursor(s, 1, place).offset()], " at position ", place, " is outside [0, ", size,
                     ")");
}

}  // namespace

int64_t check_indices(const TensorView& index, int64_t size) {
  const Space s(index.shape, {&index.strides});
  FirstBad bad(s.numel);
  parallel_for(s.numel, kBlock, s.numel, [&](int64_t begin, int64_t end) {
    Cursor cursor(s, 0, begin);
    for (int64_t done = begin; done < end && !bad.is_before(done);) {
      const int64_t n = std::min({end - done, cursor.row_left(), kBlock});
      if (bad.find(index.as<const int64_t>() + cursor.offset(), cursor.stride(), n, uint64_t(size), done)) return;
      cursor.advance(n);
      done += n;
    }
  });
  return bad.place();
}

void gather(const TensorView& x, int dim, const TensorView& index, const TensorView& out) {
  if (out.numel() == 0) return;
  const TensorView chosen = broadcast_index(index, out.shape, dim);
  switch (size_of(x.dtype)) {
    case 1: return gather_bits<uint8_t>(x, dim, chosen, out);
    case 2: return gather_bits<uint16_t>(x, dim, chosen, out);
    case 4: return gather_bits<uint32_t>(x, dim, chosen, out);
    default: return gather_bits<uint64_t>(x, dim, chosen, out);
  }
}

void index_select(const TensorView& x, int dim, const TensorView& index, const TensorView& out) { gather(x, dim, index, out); }

}  // namespace halfstep::cpu
